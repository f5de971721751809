"""The seven defects of rocketmq-spark, the connector before this one, each shown not to be here.

Without Spark: the functions that its tasks run, over sockets. Whole queries are in `test_spark_*`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cometmq.errors import CometError, DataLoss, RowNotSent
from cometmq.model.queue import MessageQueue
from cometmq.spark.sink import sink_options
from cometmq.spark.sink.rejected_rows import WrittenBatch
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.row_identity import WRITE
from cometmq.spark.sink.writers import send_rows
from cometmq.spark.source import cluster_client as clusters
from cometmq.spark.source import source_options
from cometmq.spark.source.batch_reader import BatchReader
from cometmq.spark.source.offset_planning import OffsetRange
from cometmq.spark.source.pull import read_batches
from cometmq.wire.codes import RequestCode
from spark.scripted import Script, ScriptedBroker

if TYPE_CHECKING:
    from cometmq.spark.source.source_options import SourceOptions
    from spark.live import Live

A = MessageQueue("T", "broker-a", 0)


def offsets(options: SourceOptions, end: int) -> list[int]:
    """The offsets of the rows of a queue up to `end`."""
    found: list[int] = []
    for batch in read_batches(options, [OffsetRange(A, 0, end)]):
        found += batch["queue_offset"].to_pylist()
    return found


def send(
    live: Live, topic: str, columns: dict[str, list[Any]], batch: int = 0, **options: str
) -> int:
    """Run a task of the sink; how many rows it reports as stored."""
    parsed = sink_options.parse({"namesrv": live.namesrv, "topic": topic, **options})
    used = RowColumns(frozenset(columns), is_read=False)
    kinds = {"properties": pa.map_(pa.string(), pa.string())}  # as Spark hands pairs over
    arrays = [pa.array(values, kinds.get(name)) for name, values in columns.items()]
    rows = iter([pa.RecordBatch.from_arrays(arrays, names=list(columns))])
    return send_rows(rows, parsed, used, WrittenBatch("query", batch), 0).count


def stored(live: Live, topic: str) -> list[dict[str, Any]]:
    """All rows that a new reader finds."""
    names = "queue_id,keys,tags,body,properties,sharding_key"
    given = {"namesrv": live.namesrv, "topic": topic, "columns": names}
    reader = BatchReader(source_options.parse(given))
    rows = []
    for part in reader.partitions():
        for batch in reader.read(part):
            rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows


@pytest.mark.parametrize("scan_max", [1, 800])
def test_defect_1_a_filter_that_leaves_messages_out_does_not_fail_the_read(scan_max: int) -> None:
    script = Script(scan_max=scan_max).fill(0, 60)
    with ScriptedBroker(script) as scripted:
        assert offsets(scripted.options(tags="odd"), 60) == list(range(1, 60, 2))
        assert offsets(scripted.options(tags="nobody || none"), 60) == []


def test_defect_2_messages_that_have_expired_are_left_out_when_that_is_asked_for() -> None:
    script = Script(earliest_offsets={0: 40}).fill(0, 60)
    with ScriptedBroker(script) as scripted:
        with pytest.raises(DataLoss, match="no longer holds the messages from 0 up to 40"):
            offsets(scripted.options(), 60)
        assert offsets(scripted.options(failOnDataLoss="false"), 60) == list(range(40, 60))


def test_defect_3_a_task_does_not_end_well_while_a_send_is_unanswered_or_has_failed(
    live: Live, topic: str
) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    assert send(live, topic, {"body": bodies}, maxInFlight="3000") == 3000
    assert sorted(row["body"] for row in stored(live, topic)) == sorted(bodies)
    with pytest.raises(RowNotSent, match="no broker has a queue 9"):
        send(live, topic, {"body": bodies, "queue_id": [0] * 2999 + [9]}, maxInFlight="3000")
    script = Script(holds_sends=True).fill(0, 1)
    with ScriptedBroker(script) as silent:
        given = {"namesrv": silent.addr, "topic": "T", "retryForMs": "300"}
        columns = {"body": bodies[:3]}
        used = RowColumns(frozenset(columns), is_read=False)
        rows = iter([pa.RecordBatch.from_pydict(columns)])
        with pytest.raises(CometError) as unanswered:
            send_rows(rows, sink_options.parse(given), used, WrittenBatch("query", 0), 0)
        assert script.sends, unanswered.value


def test_defect_4_connections_are_used_again_and_closed() -> None:
    script = Script().fill(0, 60)
    with ScriptedBroker(script) as scripted:
        for _ in range(5):
            assert len(offsets(scripted.options(), 60)) == 60
        assert len(scripted._connections) == 1
        others = [scripted.options(group=f"g{number}") for number in range(12)]
        for options in others:
            assert len(offsets(options, 60)) == 60
        assert len(clusters._clients) == clusters._CLIENTS_MAX
        kept = [one for one in clusters._clients.values() if one._routes._channels]
        assert len(kept) == clusters._CLIENTS_MAX, "the clients that were dropped are closed"


def test_defect_5_rows_of_a_batch_that_is_replayed_are_distinguished_from_others(
    live: Live, topic: str
) -> None:
    columns = {"body": [b"1", b"2", b"2"]}
    for batch in (0, 0, 1):
        send(live, topic, columns, batch)
    written = [row["properties"][WRITE] for row in stored(live, topic)]
    assert len(written) == 9
    assert len(set(written)) == 6, "what is repeated is equal, and nothing else is"


def test_defect_6_a_start_by_offsets_need_not_name_every_queue_and_is_written_nowhere() -> None:
    script = Script().fill(0, 10).fill(1, 10)
    with ScriptedBroker(script) as scripted:
        start = json.dumps({"broker-a:0": 7})
        for queues in (2, 3):
            reader = BatchReader(scripted.options(startingOffsets=start))
            ranges = [one for part in reader.partitions() for one in part.value]
            found = {one.queue.queue_id: (one.begin, one.end) for one in ranges}
            assert found == {0: (7, 10)} | dict.fromkeys(range(1, queues), (0, 10))
            script.fill(2, 10)
            clusters.cluster_client_of(scripted.options(startingOffsets=start)).reset()
        assert RequestCode.UPDATE_CONSUMER_OFFSET not in script.codes


def test_defect_7_rows_are_written_with_keys_tags_properties_sharding_key_and_delay(
    live: Live, topic: str
) -> None:
    columns: dict[str, list[Any]] = {
        "body": [b"first", b"second"],
        "keys": [["k1", "k2"], ["k3"]],
        "tags": ["red", None],
        "properties": [[("colour", "blue")], None],
        "sharding_key": ["N1", "N1"],
    }
    assert send(live, topic, columns) == 2
    first, second = sorted(stored(live, topic), key=lambda row: bytes(row["body"]))
    assert (first["keys"], first["tags"], first["sharding_key"]) == ("k1 k2", "red", "N1")
    assert (second["keys"], second["tags"], second["sharding_key"]) == ("k3", None, "N1")
    assert first["properties"]["colour"] == "blue"
    assert first["queue_id"] == second["queue_id"]
    assert send(live, topic, {"body": [b"later"], "delay_level": [3]}) == 1
    assert len(stored(live, topic)) == 2, "the broker keeps it for ten seconds"
