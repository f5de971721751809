"""Parked messages of a running group as one table: what became of each, and back in order."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from client.keyed_messages import Seen
from client.short_delay_cluster import until
from cometmq import Admin, ConsumeFrom, Message, OnFailure, Producer, PushConsumer
from cometmq.cli.main import run as command_line
from cometmq.errors import SettingsError
from cometmq.spark.tables.parked_messages import parked_messages, read_parked
from cometmq.spark.tables.parked_return import send_back

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from cometmq import MessageExt
    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


class Faulty(Seen):
    """A handler that fails on some bodies, and notes the others."""

    def __init__(self, *bad: str) -> None:
        super().__init__()
        self.bad = set(bad)

    def __call__(self, messages: list[MessageExt]) -> None:
        if messages[0].body.decode() in self.bad:
            raise ValueError("no time in it")
        self.note(messages)


@pytest.fixture
def admin(live: Live) -> Iterator[Admin]:
    with Admin(namesrv=live.namesrv) as running:
        yield running


def member(live: Live, topic: str, group: str, seen: Faulty, place: Path) -> PushConsumer:
    consumer = PushConsumer(
        group,
        namesrv=live.namesrv,
        order="key",
        consume_from=ConsumeFrom.FIRST,
        state_dir=place / "state",
    )
    consumer.subscribe(topic, "*", seen, on_failure=OnFailure.park())
    return consumer


def send(live: Live, topic: str, *bodies: str) -> None:
    with Producer("sender", namesrv=live.namesrv) as producer:
        for body in bodies:
            pairs = {"colour": "red"}
            producer.send(
                Message(topic, body.encode(), keys=f"k-{body}", sharding_key=body[0],
                        properties=pairs)
            )  # fmt: skip


def rows(spark: SparkSession, live: Live, place: Path, group: str) -> dict[str, Row]:
    """The table after another run, by what the messages were sent with."""
    parked_messages(spark, place, groups=[group], namesrv=live.namesrv)
    return {row["keys"].removeprefix("k-"): row for row in read_parked(spark, place).collect()}


def test_the_table_says_what_became_of_each_parked_message(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, admin: Admin
) -> None:
    group, place, seen = f"parkers-{topic}", tmp_path / "parked", Faulty("a1", "b1", "c1", "d1")
    send(live, topic, "a0", "a1", "b1", "a2", "c1", "d1", "d2")
    with member(live, topic, group, seen, tmp_path):
        until(lambda: len(admin.parked(group)) == 6)
        found = rows(spark, live, place, group)
        assert set(found) == {"a1", "a2", "b1", "c1", "d1", "d2"}
        assert {row.state for row in found.values()} == {"parked"}
        first, behind = found["a1"], found["a2"]
        assert (first.group, first.key, first.attempts, first.has_failed) == (group, "a", 1, True)
        assert first.origin_topic == topic
        assert (first.origin_queue_id, first.origin_offset + 1) in (
            (behind.origin_queue_id, behind.origin_offset),
            (behind.origin_queue_id, behind.origin_offset - 1),
        ), "no other key came between, or b1 did"
        assert (first.reason, bytes(first.body)) == ("ValueError: no time in it", b"a1")
        assert (first.tags, first.properties["colour"], first.is_repaired) == (None, "red", False)
        assert first.parked_at is not None
        assert first.left_at is None
        assert not [name for name in first.properties if name.startswith(("DLQ_", "PARK_"))]
        assert (behind.has_failed, bytes(behind.body)) == (False, b"a2")

        assert admin.release_parked(group, key="d").done == 0, "it fails again"
        (to_repair,) = admin.parked(group, key="b")
        assert admin.repair_parked(group, to_repair, b"b1, at noon")
        seen.bad.clear()
        assert admin.release_parked(group, key="a").done == 2
        assert admin.drop_parked(group, key="c").done == 1
        found = rows(spark, live, place, group)
        states = {name: row.state for name, row in found.items()}
        assert states == {
            "a1": "released", "a2": "released", "b1": "parked", "c1": "dropped",
            "d1": "parked", "d2": "parked",
        }  # fmt: skip
        assert found["a1"].left_at >= found["a1"].parked_at
        assert (bytes(found["b1"].body), found["b1"].is_repaired) == (b"b1, at noon", True)
        assert found["d1"].attempts == 2
        assert admin.redrive_parked(group, key="d").done == 2
        assert admin.redrive_parked(group, key="b", to=topic).done == 1
        found = rows(spark, live, place, group)
        assert {name: found[name].state for name in ("b1", "d1")} == {
            "b1": "redriven",
            "d1": "redriven",
        }
        assert (found["b1"].sent_to, found["d1"].sent_to) == (topic, None)


def test_rows_are_repaired_in_sql_and_their_keys_go_back_in_order_once(
    spark: SparkSession,
    live: Live,
    topic: str,
    tmp_path: Path,
    admin: Admin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group, place, seen = f"parkers-{topic}", tmp_path / "parked", Faulty("a1", "b1")
    common = ["--namesrv", live.namesrv, "--json"]
    kept = ["pipeline", "parked", str(place), "--group", group, *common]
    assert command_line(kept) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {}, "nothing was parked yet"
    send(live, topic, "a1", "b1", "a2", "b2")
    with member(live, topic, group, seen, tmp_path):
        until(lambda: len(admin.parked(group)) == 4)
        assert command_line(kept) == 0
        assert json.loads(capsys.readouterr().out)["states"] == {"parked": 4}
        table = read_parked(spark, place)
        others = [name for name in table.columns if name != "body"]
        repaired = table.where("key = 'a'").selectExpr(
            *others, "replace(cast(body AS string), 'a1', 'a1, at noon') AS body"
        )
        plan = send_back(repaired, namesrv=live.namesrv, dry_run=True)
        assert (plan.asked, plan.done, len(admin.parked(group))) == (2, 0, 4)
        report = send_back(repaired, namesrv=live.namesrv)
        assert (report.asked, report.done, report.refused) == (2, 2, ())
        assert send_back(repaired, namesrv=live.namesrv).asked == 0, "they have left"
        assert seen.by_key["a"] == ["a1, at noon", "a2"]
        assert len(admin.parked(group)) == 2, "the other key stays"

        seen.bad.clear()
        release = ["pipeline", "release", str(place), "--sql", "SELECT * FROM parked", *common]
        assert command_line(release) == 0
        assert json.loads(capsys.readouterr().out) == {
            "asked": 2, "done": 0, "dry_run": True, "refused": [],
        }  # fmt: skip
        assert command_line([*release, "--yes"]) == 0
        assert json.loads(capsys.readouterr().out)["done"] == 2
    assert seen.by_key["b"] == ["b1", "b2"]
    with pytest.raises(SettingsError, match="needs the columns body"):
        send_back(table.drop("body"), namesrv=live.namesrv)
    with pytest.raises(SettingsError, match="redrive=True"):
        send_back(table, namesrv=live.namesrv, to=topic)


def test_two_operators_at_the_same_moment_send_each_row_once(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, admin: Admin
) -> None:
    group, place, again = f"parkers-{topic}", tmp_path / "parked", f"{topic}-again"
    keys = "abc"
    admin.create_topic(again, queues=1)
    seen = Faulty(*(f"{key}1" for key in keys))
    send(live, topic, *(f"{key}{step}" for step in (1, 2, 3, 4) for key in keys))
    with member(live, topic, group, seen, tmp_path):
        until(lambda: len(admin.parked(group)) == 12)
        assert command_line(
            ["pipeline", "parked", str(place), "--group", group, "--namesrv", live.namesrv]
        ) == 0  # fmt: skip

        def send_all(_operator: int) -> int:
            table = read_parked(spark, place)
            return send_back(table, namesrv=live.namesrv, redrive=True, to=again).done

        with ThreadPoolExecutor(2) as operators:
            done = [*operators.map(send_all, range(2))]
        until(lambda: not admin.parked(group))
        sent = [one.body.decode() for one in admin.peek(again, 100, oldest=True)]
    assert max(done) > 0
    assert sorted(sent) == sorted(f"{key}{step}" for key in keys for step in (1, 2, 3, 4))
    for key in keys:
        assert [one for one in sent if one[0] == key] == [f"{key}{step}" for step in (1, 2, 3, 4)]
