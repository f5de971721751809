"""Dead letters of several groups and clients as one table, and back to their topics in order."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from broker.commands import send_header
from cometmq import Admin, ConsumeFrom, Message, Producer, PushConsumer
from cometmq.cli.main import run as command_line
from cometmq.errors import ClientError, SettingsError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.spark.tables.archive_reading import read_archive
from cometmq.spark.tables.dead_letters import dead_letters
from cometmq.spark.tables.redrive import planned, redrive
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

KEYS, EACH = ("Ada", "Grace", "Mary"), 4


def give_up(live: Live, topic: str, group: str) -> None:
    """Send messages of several keys to a group that refuses all, and wait for its dead letters."""
    with Producer("sender", namesrv=live.namesrv) as producer:
        for number in range(EACH):
            for key in KEYS:
                pairs = {"colour": "red"}
                producer.send(
                    Message(topic, b"%d" % number, tags="T", keys=f"{key}{number}",
                            sharding_key=key, properties=pairs)
                )  # fmt: skip

    def refuse(_messages: object) -> None:
        raise ValueError("no such account")

    seen = threading.Event()
    count = 0

    def note(messages: list[object]) -> None:
        nonlocal count
        count += len(messages)
        if count >= EACH * len(KEYS):
            seen.set()

    consumer = PushConsumer(
        group, namesrv=live.namesrv, orderly=True, max_attempts=1, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe(topic, "*", refuse)
    watcher = PushConsumer(f"{group}-w", namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST)
    watcher.subscribe(f"%DLQ%{group}", "*", note)
    with Admin(namesrv=live.namesrv) as admin:
        admin.create_topic(f"%DLQ%{group}", queues=1)
    with consumer, watcher:
        assert seen.wait(30)


def write_as_java_does(live: Live, topic: str, group: str, body: bytes) -> None:
    """A dead letter as Apache's broker and Java's client leave it."""
    with Admin(namesrv=live.namesrv) as admin:
        admin.create_topic(f"%DLQ%{group}", queues=1)
    pairs = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000001234"}
    header = send_header(f"%DLQ%{group}", properties=pairs, reconsume_times=16)
    with BlockingChannel(live.broker) as channel:
        assert channel.call(RequestCode.SEND_MESSAGE_V2, header, body).code == 0


def test_dead_letters_of_all_groups_are_one_table_and_go_back_in_order(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, java = f"ours-{topic}", f"java-{topic}"
    give_up(live, topic, ours)
    write_as_java_does(live, topic, java, b"from Java")
    place = tmp_path / "letters"

    assert dead_letters(spark, place, groups=[ours], namesrv=live.namesrv).rows == 12
    other = tmp_path / "all"
    assert dead_letters(spark, other, namesrv=live.namesrv).rows >= 13
    assert dead_letters(spark, other, namesrv=live.namesrv).rows == 0
    found = {row.group: row for row in read_archive(spark, other).collect()}
    letter = found[ours]
    assert letter.reason.startswith("ValueError: no such account")
    assert (letter.attempts, letter.origin_topic, letter.tags) == (1, topic, "T")
    assert letter.failed_at is not None
    assert letter.origin_offset is not None
    java_letter = found[java]
    assert (java_letter.attempts, java_letter.origin_topic) == (16, topic)
    assert java_letter.origin_message_id == "7F00000100002A9F0000000000001234"
    assert java_letter.reason is None

    letters = read_archive(spark, place)
    back = live.make_topic(f"{topic}-back", 2)
    others = [name for name in letters.columns if name != "body"]
    repaired = letters.where("sharding_key <> 'Mary'").selectExpr(
        *others, "concat('fixed ', cast(body AS string)) AS body"
    )
    assert planned(repaired) == {topic: 8}
    assert redrive(repaired, namesrv=live.namesrv, topic=back) == {back: 8}
    assert redrive(repaired, namesrv=live.namesrv, topic=back) == {}, "each once"
    options = {"namesrv": live.namesrv, "topic": back}
    columns = "queue_id,queue_offset,body,keys,tags,sharding_key,properties"
    rows = (
        spark.read.format("rocketmq")
        .options(**options, columns=columns)
        .load()
        .orderBy("queue_id", "queue_offset")
        .collect()
    )
    for key in ("Ada", "Grace"):
        mine = [row for row in rows if row.sharding_key == key]
        assert [row.body for row in mine] == [b"fixed %d" % number for number in range(EACH)]
        assert [row["keys"] for row in mine] == [f"{key}{number}" for number in range(EACH)]
        assert {row.properties["colour"] for row in mine} == {"red"}
        assert not [name for row in mine for name in row.properties if name.startswith("DLQ_")]

    common = ["--namesrv", live.namesrv, "--json"]
    assert command_line(["pipeline", "redrive", str(place), "--topic", back, *common]) == 0
    assert json.loads(capsys.readouterr().out) == {"sent": False, "topics": {back: 12}}
    chosen = "SELECT * FROM dead_letters WHERE keys = 'Mary3'"
    sent = ["pipeline", "redrive", str(place), "--sql", chosen, "--topic", back, "--yes", *common]
    assert command_line(sent) == 0
    assert json.loads(capsys.readouterr().out) == {"sent": True, "topics": {back: 1}}
    assert spark.read.format("rocketmq").options(**options).load().count() == 9
    assert command_line(["pipeline", "deadletters", str(place), "--group", ours, *common]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 0


def test_letters_without_an_origin_are_not_sent_and_the_error_says_what_to_do(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    group = f"bare-{topic}"
    with Admin(namesrv=live.namesrv) as admin:
        admin.create_topic(f"%DLQ%{group}", queues=1)
    live.send(f"%DLQ%{group}", 0, [b"whose?"])
    place = tmp_path / "letters"
    assert dead_letters(spark, place, groups=[group], namesrv=live.namesrv).rows == 1
    letters = read_archive(spark, place)
    elsewhere = letters.selectExpr(*(name for name in letters.columns if name != "broker"))
    elsewhere = elsewhere.selectExpr("*", "'gone' AS broker")
    with pytest.raises(ClientError, match=r"queue 0 of %DLQ%.* at gone is not in this cluster"):
        redrive(elsewhere, namesrv=live.namesrv, topic=topic)
    others = [name for name in letters.columns if name != "topic"]
    with pytest.raises(SettingsError, match="is no dead-letter topic"):
        redrive(letters.selectExpr(*others, "'t' AS topic"), namesrv=live.namesrv, topic=topic)
    with pytest.raises(SettingsError, match="1 of the dead letters don't say which topic"):
        redrive(letters, namesrv=live.namesrv)
    with pytest.raises(SettingsError, match="needs the columns sharding_key"):
        planned(letters.drop("sharding_key"))


def test_letters_are_read_once_to_be_counted_and_sent(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    group, noted = f"slow-{topic}", tmp_path / "noted"
    with Admin(namesrv=live.namesrv) as admin:
        admin.create_topic(f"%DLQ%{group}", queues=1)
    live.send(f"%DLQ%{group}", 0, [b"a", b"b"])
    place = tmp_path / "letters"
    dead_letters(spark, place, groups=[group], namesrv=live.namesrv)
    letters = read_archive(spark, place)

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with noted.open("a") as file:
                file.write("x" * batch.num_rows)
            yield batch

    repaired = letters.mapInArrow(note, letters.schema)
    assert redrive(repaired, namesrv=live.namesrv, topic=topic) == {topic: 2}
    assert noted.read_text() == "xx"
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "nothing of it is kept"


def test_two_operators_at_the_same_moment_send_each_letter_once(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    group, place, back = f"twice-{topic}", tmp_path / "letters", live.make_topic(f"{topic}-back", 2)
    give_up(live, topic, group)
    dead_letters(spark, place, groups=[group], namesrv=live.namesrv)

    def send_all(operator: int) -> int:
        if operator == 0:
            with Admin(namesrv=live.namesrv) as admin:
                return admin.redrive_dead_letters(group, to=back).done
        return sum(redrive(read_archive(spark, place), namesrv=live.namesrv, topic=back).values())

    with ThreadPoolExecutor(3) as operators:
        done = [*operators.map(send_all, range(3))]
    assert sum(done) == EACH * len(KEYS), done
    with Admin(namesrv=live.namesrv) as admin:
        sent = admin.peek(back, 100, oldest=True)
        assert admin.open_dead_letters(group) == []
    assert len(sent) == EACH * len(KEYS)
    for key in KEYS:
        mine = [one.body for one in sent if one.sharding_key == key]
        assert mine == [b"%d" % number for number in range(EACH)]
