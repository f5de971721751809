"""Rows of stored records as messages for handlers."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from cometmq.errors import ProtocolError
from cometmq.spark.handling.record_messages import queue_runs
from cometmq.wire.records import sysflag
from spark.scripted import record

MIB = 1024 * 1024


def batch(*rows: tuple[str, bytes]) -> pa.RecordBatch:
    brokers, records = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"broker": list(brokers), "record": list(records)})


def test_messages_come_by_queue_in_the_order_of_the_rows() -> None:
    rows = [("a", record(queue, offset)) for queue in (0, 1) for offset in range(700)]
    found: dict[int, list[int]] = {0: [], 1: []}
    for queue, messages, has_unreadable in queue_runs(batch(*rows, ("b", record(1, 7))), MIB):
        assert not has_unreadable
        if queue.broker_name == "a":
            found[queue.queue_id] += [message.queue_offset for message in messages]
        else:
            assert [(m.broker_name, m.queue_offset) for m in messages] == [("b", 7)]
    assert found == {0: list(range(700)), 1: list(range(700))}


def test_a_message_of_a_retry_topic_has_its_first_topic_and_keeps_its_queue() -> None:
    row = record(0, 3, topic="%RETRY%g", pairs={"RETRY_TOPIC": "T"})
    ((queue, messages, _),) = queue_runs(batch(("a", row)), MIB)
    assert (queue.topic, messages[0].topic) == ("%RETRY%g", "T")


def test_large_bodies_are_inflated_a_few_at_a_time_and_damaged_ones_are_marked() -> None:
    squeezed = zlib.compress(b"x" * MIB)
    flag = sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB
    rows = [("a", record(0, offset, body=squeezed, sys_flag=flag)) for offset in range(9)]
    rows.append(("a", record(0, 9, body=squeezed[:-3], sys_flag=flag)))
    runs = list(queue_runs(batch(*rows), MIB))
    assert [len(messages) for _, messages, _ in runs][:2] == [4, 4]
    messages = [message for _, run, _ in runs for message in run]
    assert [len(message.body) for message in messages[:9]] == [MIB] * 9
    assert messages[9].unreadable
    assert [has_unreadable for _, _, has_unreadable in runs] == [False, False, True]


def test_bytes_that_are_no_record_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="bytes of a that are no record"):
        list(queue_runs(batch(("a", b"no record at all")), MIB))
