"""The backlog of groups at a real broker, and the arithmetic of rates."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from client.short_delay_cluster import short_delay_cluster, until
from cometmq import (
    Admin,
    ConsumeFrom,
    Message,
    MessageQueue,
    OnFailure,
    Producer,
    PushConsumer,
)
from cometmq.cli.main import run as command_line
from cometmq.errors import ClientError, RouteNotFound, SettingsError
from cometmq.model.admin_stats import QueueProgress, TopicOffset
from cometmq.spark.tables.backlog import _looks, _ProgressSnapshot, _rows, backlog

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)
PARKED = MessageQueue("%PARK%g", "broker-a", 0)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with short_delay_cluster(tmp_path_factory.mktemp("backlog")) as cluster:
        yield cluster.namesrv


def look(at_s: float, done_ms: int = 1000, **queues: tuple[int, int, int]) -> _ProgressSnapshot:
    """By queue: the first offset, the end, and what is committed; `done_ms`: its store time."""
    named = {"a": A, "b": B, "retry": RETRY, "parked": PARKED}
    return _ProgressSnapshot(
        at_s,
        {
            named[name]: QueueProgress(
                broker_offset=end, consumer_offset=done, last_timestamp=done_ms if done else 0
            )
            for name, (_, end, done) in queues.items()
        },
        {
            named[name]: TopicOffset(min_offset=first, max_offset=end, last_update_timestamp=4500)
            for name, (first, end, _) in queues.items()
        },
    )


def test_rates_drain_and_skew_come_from_two_looks() -> None:
    before = look(10.0, a=(0, 100, 10), b=(0, 50, 50), retry=(0, 3, 0))
    after = look(12.0, a=(0, 120, 60), b=(0, 60, 60), retry=(0, 4, 1))
    (row,) = _rows("g", before, after, 7)
    assert (row.lag, row.in_rate, row.out_rate, row.drain_s) == (60, 15.0, 30.0, 4.0)
    assert (row.skew, row.longest_queue, row.queues) == (2.0, "broker-a:0", 2)
    assert (row.retry_depth, row.dead_letters, row.behind_s) == (3, 7, 3.5)
    (row,) = _rows("g", before, look(12.0, a=(0, 300, 60), b=(0, 50, 50)), 0)
    assert row.drain_s is None, "it grows"
    (row,) = _rows("g", before, look(12.0, a=(0, 100, 100), b=(0, 50, 50)), 0)
    assert (row.lag, row.drain_s, row.skew, row.longest_queue) == (0, 0.0, 1.0, "")


def test_how_long_a_group_is_behind_is_unknown_where_it_has_done_nothing() -> None:
    def behind(**more: tuple[int, int, int]) -> float | None:
        (row,) = _rows("g", look(1, **more), look(2, **more), 0)
        return row.behind_s

    assert behind(a=(0, 100, 0)) is None
    assert behind(a=(0, 100, 10), b=(0, 50, 0)) is None
    assert behind(a=(0, 100, 10), b=(0, 0, 0)) == 3.5, "an empty queue has no lag"
    assert behind(a=(0, 100, 100), b=(0, 0, 0)) == 0.0
    row = look(1, done_ms=0, a=(80, 100, 10))
    assert _rows("g", row, row, 0)[0].behind_s is None, "the last message done was deleted"


def test_how_far_a_parking_topic_must_be_read_is_no_backlog() -> None:
    (row,) = _rows("g", look(1.0, a=(0, 9, 9)), look(2.0, a=(0, 9, 9), parked=(0, 50, 2)), 0)
    assert (row.topic, row.lag) == ("T", 0)


def test_what_retention_deleted_is_no_backlog() -> None:
    (row,) = _rows("g", look(1, a=(80, 100, 10)), look(2, a=(90, 100, 10)), 0)
    assert (row.lag, row.out_rate) == (10, 10.0)


def test_groups_of_a_broker_with_retries_and_dead_letters(
    namesrv: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic("work", queues=2)
        queues = admin.queues("work")
    with Producer("p", namesrv=namesrv) as producer:
        for body in (b"well", b"dead", b"later", b"well"):
            producer.send(Message("work", body))
    seen, enough = [], threading.Event()

    def handle(messages: list[Message]) -> None:
        seen.append(messages[0].body)
        if len(seen) >= 4 and seen.count(b"later") == 2:
            enough.set()
        if messages[0].body == b"dead":
            raise LookupError
        if messages[0].body == b"later":
            raise ValueError

    consumer = PushConsumer("workers", namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("work", "*", handle, on_failure={LookupError: OnFailure.dead_letter()})
    with consumer:
        assert enough.wait(30)
    with Producer("p", namesrv=namesrv) as producer:
        for _ in range(6):
            producer.send(Message("work", b"more"), queue=queues[1])

    def rows() -> list[tuple[object, ...]]:
        return [
            (one.group, one.topic, one.lag, one.longest_queue, one.retry_depth, one.dead_letters)
            for one in backlog(namesrv=namesrv, over_s=0.05)
        ]

    longest = f"{queues[1].broker_name}:1"
    until(lambda: rows() == [("workers", "work", 6, longest, 1, 1)], 20)
    common = ("--over", "0.1", "-n", namesrv)
    assert command_line(["pipeline", "backlog", "workers", *common, "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["lag"], row["skew"], row["drain_s"]) == (6, 2.0, None)
    assert command_line(["pipeline", "backlog", *common]) == 0
    names, cells = (line.split() for line in capfd.readouterr().out.splitlines())
    shown = dict(zip(names, cells, strict=True))
    assert shown["drained"] == "never"
    assert shown["retry"] == shown["dead"] == "1"


def test_a_topic_of_many_groups_is_asked_for_once_a_look() -> None:
    class CountingAdmin:
        asked: ClassVar[list[str]] = []

        async def group_progress(self, group: str) -> dict[MessageQueue, QueueProgress]:
            return {A: QueueProgress(broker_offset=5, consumer_offset=2, last_timestamp=1000)}

        async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
            self.asked.append(topic)
            if topic != "T":
                raise RouteNotFound(topic)
            await asyncio.sleep(0)
            return {A: TopicOffset(min_offset=0, max_offset=5, last_update_timestamp=1)}

    names = [f"readers{at}" for at in range(20)]
    found = asyncio.run(_looks(CountingAdmin(), names))  # type: ignore[arg-type]
    assert [found[name].lag(A) for name in names] == [3] * 20
    assert CountingAdmin.asked.count("T") == 1


def test_wrong_names_and_arguments_are_one_sentence(namesrv: str) -> None:
    with pytest.raises(ClientError, match="the group nobody has committed no offset at any broker"):
        backlog("nobody", namesrv=namesrv, over_s=0.01)
    with pytest.raises(SettingsError, match="over_s is 0: it must be above 0"):
        backlog(namesrv=namesrv, over_s=0)
