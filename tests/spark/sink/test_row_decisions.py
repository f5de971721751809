"""What rows of Arrow batches become, without Spark and without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.producer import message_checks as checks
from cometmq.errors import InvalidMessage
from cometmq.model.message import Message
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.row_decisions import RowChunk, RowDecisions
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRS = pa.map_(pa.string(), pa.string())


def batch(columns: dict[str, Any]) -> pa.RecordBatch:
    arrays = [one if isinstance(one, pa.Array) else pa.array(one) for one in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def chunks(
    *batches: pa.RecordBatch, topic: str = "T", is_read: bool = False, rows_max: int = 100
) -> list[RowChunk]:
    columns = RowColumns(frozenset(batches[0].schema.names), is_read)
    return list(RowDecisions(columns, topic, "q/3/1", rows_max).chunks(batches))


def decide(columns: dict[str, Any], **more: Any) -> RowChunk:
    (chunk,) = chunks(batch(columns), **more)
    return chunk


def pairs_of(chunk: RowChunk) -> list[dict[str, str]]:
    """The properties of each row without WAIT, which all have."""
    found = [properties.decode(raw) for raw in chunk.properties.to_pylist()]
    assert all(one.pop("WAIT") == "true" for one in found)
    return found


def numbers(found: Sequence[RowChunk]) -> list[str]:
    return [pairs["SPARK_WRITE"] for chunk in found for pairs in pairs_of(chunk)]


def test_rows_are_numbered_through_chunks_and_batches() -> None:
    found = chunks(batch({"body": [b"a"] * 5}), batch({"body": ["b", "ü"]}), rows_max=2)
    assert [chunk.first for chunk in found] == [0, 2, 4, 5]
    assert [number.rsplit("/", 1)[0] for number in numbers(found)] == [
        f"q/3/1/{row}" for row in range(7)
    ]
    bodies = [body for chunk in found for body in chunk.bodies.to_pylist()]
    assert bodies[4:] == [b"a", b"b", "ü".encode()]
    assert [chunk.rows.num_rows for chunk in found] == [2, 2, 1, 2]


def test_large_bodies_make_small_chunks() -> None:
    found = chunks(batch({"body": [b"x" * 3_000_000] * 6}))
    assert [len(chunk.bodies) for chunk in found] == [2, 2, 2]


def test_every_column_of_a_row_is_sent() -> None:
    found = decide(
        {
            "topic": ["A", "B"],
            "body": [b"1", b"2"],
            "tags": ["t", None],
            "keys": [["a", None, "b"], None],
            "properties": pa.array([[("colour", "red")], None], PAIRS),
            "sharding_key": ["s", None],
            "delay_level": pa.array([3, None]),
        },
        topic="",
    )
    first, second = pairs_of(found)
    assert list(found.topics) == ["A", "B"]
    assert (found.sharding_keys, found.delays) == (["s", None], [3, None])
    assert first == {
        "colour": "red", "KEYS": "a b", "TAGS": "t", "__SHARDINGKEY": "s", "DELAY": "3",
        "SPARK_WRITE": first["SPARK_WRITE"],
    }  # fmt: skip
    assert list(second) == ["SPARK_WRITE"]
    assert not found.refused


def test_the_numbers_of_rows_that_differ_in_anything_differ_at_the_same_place() -> None:
    def made(body: bytes, tags: str | None = None) -> str:
        chunk = decide({"body": [body], "tags": pa.array([tags], pa.string())})
        return numbers([chunk])[0]

    assert made(b"1") == made(b"1")
    assert len({made(b"1"), made(b"2"), made(b"1", "t"), made(b"1", "u")}) == 4


def test_rows_as_they_were_read_carry_their_origin_and_lose_what_rocketmq_sets_itself() -> None:
    stored = [("UNIQ_KEY", "7F"), ("TAGS", "t"), ("mine", "1"), ("SPARK_ORIGIN", "old")]
    columns = {
        "topic": ["In", "In"],
        "broker": ["a", None],
        "queue_id": [3, 3],
        "queue_offset": [17, 18],
        "body": [b"1", b"2"],
        "properties": pa.array([stored, stored], PAIRS),
    }
    found = decide(columns, topic="Out", is_read=True)
    first, second = pairs_of(found)
    assert found.queues is None
    assert list(found.topics) == ["Out", "Out"]
    assert first == {
        "mine": "1", "SPARK_WRITE": first["SPARK_WRITE"], "SPARK_ORIGIN": "In/a/3/17",
    }  # fmt: skip
    assert "SPARK_ORIGIN" not in second


def test_an_origin_beside_the_queue_that_a_row_asks_for() -> None:
    where = {"topic": "In", "broker": "a", "queue_id": 3, "queue_offset": 17}
    columns = {"body": [b"1", b"2"], "queue_id": [1, None], "broker": ["b", None]}
    found = decide({**columns, "origin": [where, None]})
    assert found.queues == [("b", 1), (None, None)]
    first, second = pairs_of(found)
    assert first["SPARK_ORIGIN"] == "In/a/3/17"
    assert "SPARK_ORIGIN" not in second


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"1", None]}, "the body of a message for T is null"),
        ({"body": [b"1", b""]}, "the body of a message for T is empty"),
        ({"body": [b"1", b"x" * 4_194_305]}, "has 4194305 bytes; the limit is 4194304"),
        ({"tags": ["t", " "]}, "tags must be a text that is not blank"),
        ({"sharding_key": ["t", "a\x01"]}, "sharding_key holds the character 1 or 2"),
        ({"delay_level": [1, -1]}, "delay_level is -1"),
        (
            {"properties": pa.array([None, [("TAGS", "t")]], PAIRS)},
            "property name TAGS is reserved",
        ),
        (
            {"properties": pa.array([None, [("a", None)]], PAIRS)},
            "must be a text that is not blank",
        ),
        ({"properties": pa.array([None, [("a", "x" * 32_760)]], PAIRS)}, "the limit is 32639"),
        ({"topic": ["T", "no topic"]}, "no topic"),
        (
            {"queue_id": [1, None], "broker": ["b", "b"]},
            "the column broker says b, and queue_id is null",
        ),
        ({"topic": ["T", None]}, "the topic None is no text"),
        ({"topic": ["T", "SCHEDULE_TOPIC_XXXX"]}, "nothing may be sent to it"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_and_no_other_one(
    columns: dict[str, Any], reason: str
) -> None:
    found = decide({"body": [b"1", b"2"], **columns}, topic="" if "topic" in columns else "T")
    assert list(found.refused) == [1]
    assert reason in found.refused[1]


TEXTS = st.one_of(st.none(), st.sampled_from(["", " ", "a", "b\x01", "\x02", "ü", "TAGS", "\n"]))


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.binary(max_size=2)),
            TEXTS,
            TEXTS,
            TEXTS,
            st.integers(-1, 2),
            st.lists(st.tuples(TEXTS.filter(lambda name: name is not None), TEXTS), max_size=2),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_rows_are_refused_as_the_producer_would_refuse_their_messages(
    rows: list[tuple[Any, ...]],
) -> None:
    body, tags, keys, sharding_key, delay_level, pairs = zip(*rows, strict=True)
    found = decide(
        {
            "body": pa.array(body, pa.binary()),
            "tags": pa.array(tags, pa.string()),
            "keys": pa.array(keys, pa.string()),
            "sharding_key": pa.array(sharding_key, pa.string()),
            "delay_level": pa.array(delay_level, pa.int32()),
            "properties": pa.array([list(dict(one).items()) for one in pairs], PAIRS),
        }
    )
    for at, row in enumerate(rows):
        message = Message(
            "T", row[0] or b"", tags=row[1], keys=row[2], sharding_key=row[3],
            delay_level=row[4], properties=dict(row[5]),
        )  # fmt: skip
        try:
            checks.check_message(message, 4_194_304)
        except InvalidMessage:
            assert at in found.refused
        else:
            assert at not in found.refused
            pairs_sent = pairs_of(found)[at]
            del pairs_sent["SPARK_WRITE"]
            given_pairs = {
                **dict(row[5]), "KEYS": row[2], "TAGS": row[1], "__SHARDINGKEY": row[3],
                "DELAY": str(row[4]) if row[4] else None,
            }  # fmt: skip
            assert pairs_sent == {name: text for name, text in given_pairs.items() if text}
