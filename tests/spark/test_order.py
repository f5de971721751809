"""The order of stored messages: of real topics and archives, and of rows that were made wrong."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cometmq import Message, Producer
from cometmq.cli.main import run as command_line
from cometmq.errors import CometError, SettingsError
from cometmq.spark.tables.archive import archive
from cometmq.spark.tables.order import (
    EXAMPLES_MAX,
    order_of_archive,
    order_of_rows,
    order_of_topics,
)
from spark.streams import texts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark.live import Live

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

KEYS = ("Ada", "Grace", "Mary")


@dataclass(frozen=True)
class Row:
    queue_id: int
    queue_offset: int
    sharding_key: str | None
    seq: int | None
    topic: str = "T"
    broker: str = "broker-a"


def frame_of(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    schema = (
        "queue_id int, queue_offset bigint, sharding_key string, seq bigint, topic string, "
        "broker string"
    )
    return spark.createDataFrame([tuple(vars(row).values()) for row in rows], schema)


def in_order(*, queues: int = 2, each: int = 4) -> list[Row]:
    """A key in each queue, numbered from 1."""
    return [
        Row(queue, offset, f"K{queue}", offset + 1)
        for queue in range(queues)
        for offset in range(each)
    ]


def test_a_topic_of_a_producer_is_in_order_and_a_misplaced_message_is_found(
    spark: SparkSession, live: Live, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer("sender", namesrv=live.namesrv) as producer:
        for number in range(1, 31):
            for key in KEYS:
                body = json.dumps({"number": number}).encode()
                pairs = {"seq": str(number)}
                producer.send(Message(topic, body, sharding_key=key, properties=pairs))
        of_body = "get_json_object(string(body), '$.number')"
        order = order_of_topics(spark, topic, namesrv=live.namesrv, sequence=of_body)
        assert order.is_in_order
        assert order.examples == ()
        assert sum(one.rows for one in order.queues) == 90
        (keys,) = order.keys
        assert (keys.keys, keys.scattered, keys.numbered, keys.unnumbered) == (3, 0, 90, 0)
        assert (keys.late, keys.resent, keys.left_out) == (0, 0, 0)
        for seq in ("7", "40", "39"):  # the first of them again
            message = Message(topic, b"{}", sharding_key="Ada", properties={"seq": seq})
            queue_of_ada = producer.send(message).queue.queue_id
    live.send(topic, 1 - queue_of_ada, [b"{}"], {"__SHARDINGKEY": "Ada", "seq": "41"})
    live.send(topic, 0, texts(0, 5))
    by = ["--sequence", "properties.seq", "--namesrv", live.namesrv]
    assert command_line(["pipeline", "order", topic, *by]) == 1
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == [
        "topic", "broker", "queue_id", "begin", "end", "rows", "holes", "repeats", "without_key"
    ]  # fmt: skip
    assert [row[6:] for row in printed[1:3]] == [["0", "0", "5"], ["0", "0", "0"]]
    assert printed[4] == [topic, "3", "1", "94", "0", "1", "1", "8"]
    first, second = f"{topic}@broker-a/0", f"{topic}@broker-a/1"
    scattered, late, end = map(" ".join, printed[5:])
    assert scattered == f"messages of the key Ada lie in the queues {first} and {second}"
    assert late.startswith("number 39 of the key Ada lies behind 40, at offset ")
    assert end == "2 faults"


def test_an_archive_is_judged_with_its_misfits_and_by_the_fields_of_its_schema(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, of = tmp_path / "table", {"__SHARDINGKEY": "Ada"}
    bodies = [b'{"number": 1}', b'{"number": 3}', b"no number", b'{"number": 2}']
    live.send(topic, 0, bodies, of)
    live.send(topic, 1, [b'{"number": 9}'], {"__SHARDINGKEY": "Grace"})
    archive(spark, topic, place, namesrv=live.namesrv, schema="number int not null")
    by = ["--archive", str(place), "--sequence", "value.number", "--json"]
    assert command_line(["pipeline", "order", *by]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["rows"], one["holes"]) for one in found["queues"]] == [(4, 0), (1, 0)]
    (keys,) = found["keys"]
    assert (keys["keys"], keys["numbered"], keys["unnumbered"], keys["late"]) == (2, 4, 1, 1)
    assert found["examples"] == [
        f"number 2 of the key Ada lies behind 3, at offset 3 of queue {topic}@broker-a/0"
    ]


def test_holes_and_repeats_of_offsets_are_counted_exactly_whatever_their_rows_say(
    spark: SparkSession,
) -> None:
    rows = [row for row in in_order(each=200) if (row.queue_id, row.queue_offset) != (0, 150)]
    rows = [row for row in rows if row.queue_id != 1 or not 60 <= row.queue_offset < 130]
    strange = [Row(0, 70, "other", 1), Row(0, 70, None, None), rows[0]]
    order = order_of_rows(frame_of(spark, [*rows, *strange]), sequence="seq")
    first, second = order.queues
    assert (first.begin, first.end, first.rows, first.holes, first.repeats) == (0, 200, 202, 1, 3)
    assert (second.rows, second.holes, second.repeats) == (130, 70, 0)
    assert order.examples == (
        "the offsets 150 to 150 of queue T@broker-a/0 are not there",
        "the offsets 60 to 129 of queue T@broker-a/1 are not there",
        "the offset 0 of queue T@broker-a/0 has more than one row",
        "the offset 70 of queue T@broker-a/0 has more than one row",
        "the offset 70 of queue T@broker-a/0 has more than one row",
    )
    assert (order.keys[0].left_out, order.keys[0].resent) == (71, 1)


def counted(rows: list[Row]) -> tuple[dict[int, tuple[int, ...]], tuple[int, ...]]:
    """What the audit must find in one topic, counted one row after the other."""
    queues = {}
    for queue in {row.queue_id for row in rows}:
        offsets = [row.queue_offset for row in rows if row.queue_id == queue]
        holes = max(offsets) - min(offsets) + 1 - len(set(offsets))
        queues[queue] = (len(offsets), holes, len(offsets) - len(set(offsets)))
    by_key: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.queue_id, row.queue_offset)):
        if row.sharding_key is not None:
            by_key.setdefault(row.sharding_key, []).append(row)
    scattered = late = resent = left_out = unnumbered = 0
    for own in by_key.values():
        scattered += len({row.queue_id for row in own}) > 1
        seen: set[int] = set()
        reached: dict[int, int] = {}
        for row in own:
            if row.seq is None:
                unnumbered += 1
            elif row.seq in seen:
                resent += 1
            else:
                late += row.seq < reached.get(row.queue_id, row.seq)
                seen.add(row.seq)
            if row.seq is not None:
                reached[row.queue_id] = max(reached.get(row.queue_id, row.seq), row.seq)
        left_out += max(seen) - min(seen) + 1 - len(seen) if seen else 0
    return queues, (len(by_key), scattered, unnumbered, late, resent, left_out)


def test_random_topics_are_judged_as_one_row_after_the_other_would_be(
    spark: SparkSession,
) -> None:
    dice = random.Random(7)
    topics = {}
    for number in range(150):
        keys = [None, *"abcdef"[: dice.randint(1, 6)]]
        rows = [
            Row(
                dice.randrange(dice.choice((1, 3))),
                dice.randrange(-3 if dice.random() < 0.1 else 0, dice.choice((5, 200))),
                dice.choice(keys),
                dice.choice((None, dice.randint(1, 9), dice.randint(-(1 << 63), (1 << 63) - 1)))
                if dice.random() < 0.05
                else dice.randint(1, 9),
                f"T{number}",
            )
            for _ in range(dice.randint(1, 30))
        ]
        unique = {(row.queue_id, row.queue_offset): row for row in rows}
        topics[f"T{number}"] = [*unique.values(), *dice.sample(list(unique.values()), k=1)]
    order = order_of_rows(
        frame_of(spark, [row for rows in topics.values() for row in rows]), sequence="seq"
    )
    assert {one.topic for one in order.keys} == set(topics)
    for one in order.keys:
        queues, (keys, *rest, left_out) = counted(topics[one.topic])
        assert {
            each.queue_id: (each.rows, each.holes, each.repeats)
            for each in order.queues
            if each.topic == one.topic
        } == queues
        assert (one.keys, one.scattered, one.unnumbered, one.late, one.resent) == (keys, *rest)
        assert one.left_out == pytest.approx(left_out, rel=1e-9), topics[one.topic]
    assert len(order.examples) == 4 * EXAMPLES_MAX


def test_a_sequence_may_be_text_or_a_time_and_keys_of_several_topics_are_not_mixed(
    spark: SparkSession,
) -> None:
    rows = [
        *in_order(),
        *(replace(row, topic="U", queue_id=1 - row.queue_id) for row in in_order()),
    ]
    frame = frame_of(spark, rows).selectExpr(
        "*",
        "if(seq = 2, 'two', string(seq)) AS text",
        "timestamp_seconds(100 - seq) AS falling",
        "seq * 1.5D AS half",
    )
    one, other = order_of_rows(frame, sequence="text").keys
    assert (one.scattered, one.numbered, one.unnumbered, one.left_out) == (0, 6, 2, 2)
    assert replace(one, topic="U") == other
    order = order_of_rows(frame, sequence="falling")
    assert [(each.late, each.left_out) for each in order.keys] == [(6, None), (6, None)]
    start = datetime.fromtimestamp(0, UTC)
    low, high = (str(start + timedelta(seconds=at))[:19] for at in (98, 99))
    assert order.examples[0] == (
        f"number {low} of the key K0 lies behind {high}, at offset 1 of queue T@broker-a/0"
    )
    assert order_of_rows(frame).keys[0].late is None
    with pytest.raises(SettingsError, match="is of the type double"):
        order_of_rows(frame, sequence="half")
    with pytest.raises(SettingsError, match="the key 'nobody' is no expression over the columns"):
        order_of_rows(frame, key="nobody")
    with pytest.raises(SettingsError, match="needs the columns broker, queue_offset"):
        order_of_rows(frame.drop("broker", "queue_offset"))


def test_an_empty_topic_and_topics_without_keys_and_no_archive_say_so(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--namesrv", live.namesrv]
    assert command_line(["pipeline", "order", topic, *common]) == 0
    assert capsys.readouterr().out == "there is no message\n"
    live.send(topic, 1, texts(0, 3))
    by_id = ["--key", "msg_id", "--sequence", "store_ts"]
    assert command_line(["pipeline", "order", topic, *by_id, *common]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all is in order"
    assert command_line(["pipeline", "order", topic, *common]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "the offsets are in order; no message has a key"
    )
    with pytest.raises(CometError, match="there is no archive in"):
        order_of_archive(spark, tmp_path / "none")
    with pytest.raises(CometError, match="nobody-made-this"):
        order_of_topics(spark, "nobody-made-this", namesrv=live.namesrv)
