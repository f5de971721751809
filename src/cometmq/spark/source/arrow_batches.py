"""Turns the records of a pull into an Arrow batch, column by column, without message objects.

The record layout is read in vectors: numpy reads each fixed field of all records at once (through
windows that overlap byte by byte), and Arrow's `take` copies the variable ones out of the answer's
bytes. Only the checksum of a body takes a step of its own.
Invariant: the same bytes give the same batch; bytes that are not records raise ProtocolError.
Layout: total:4 magic:4 crc:4 queueId:4 flag:4 queueOffset:8 phyOffset:8 sysFlag:4 bornTime:8
bornHost:4|16+4 storeTime:8 storeHost:4|16+4 reconsume:4 prepared:8 bodyLen:4 body topicLen:1|2
topic propsLen:2 props, where props = (key 0x01 value 0x02)*.    Java: MessageDecoder.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.errors import DamagedMessage, InvalidMessage
from cometmq.rules.filters.tag_expressions import split_expression
from cometmq.spark.source.arrow_columns import byte_slices, column, repeated
from cometmq.spark.source.columns import arrow_schema
from cometmq.spark.source.property_entries import Properties
from cometmq.spark.source.record_gaps import missing_offsets
from cometmq.spark.source.record_positions import HEAD, chosen, read_at, record_heads, require
from cometmq.wire.compression import BYTES_MAX as INFLATED_BYTES_MAX
from cometmq.wire.compression import inflate
from cometmq.wire.records.log_record import CRC_MASK, FIXED_BYTES, MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from cometmq.model.queue import MessageQueue

    Ints = NDArray[np.int64]

_log = logging.getLogger(__name__)

ROWS_MAX = 4096
"""A batch is returned once it has this many rows ..."""
BYTES_MAX = 4 * 1024 * 1024
"""... or stored records of this size."""

_COMPRESSED, _BORN_V6, _STORE_V6 = 0x1, 0x10, 0x20

_TIME = np.dtype(">i8")
_LAST = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")])
_SHORT = np.dtype(">u2")


class PulledRecords(NamedTuple):
    """Records of one queue as one pull brought them; those at `end` and above do not count."""

    queue: MessageQueue
    end: int
    data: bytes
    next: int = 0
    """Where the next pull goes on; 0 where nobody looks for missing offsets."""


class BatchBuilder:
    """Collects pulled records until they are enough for a batch; `tags` filters the messages.

    A batch ends with the pull that reaches about `ROWS_MAX` or `BYTES_MAX`, so it may exceed them
    by one pull; a message larger than `BYTES_MAX` gets a batch of its own. Where bodies were
    compressed, a batch also ends with the body that makes `BYTES_MAX` inflated bytes, so those of a
    batch are below `BYTES_MAX` and one largest body together.
    """

    def __init__(
        self,
        columns: Sequence[str],
        tags: str = "*",
        *,
        unfiltered: str = "",
        fail_on_damage: bool = True,
        check_gaps: Callable[[MessageQueue, Sequence[range]], None] | None = None,
    ) -> None:
        """`unfiltered` is a topic whose messages are all wanted, whatever their tags.

        `fail_on_damage`: a body whose checksum is wrong is a DamagedMessage, else null.
        `check_gaps` is called before a batch whose queue lacks offsets between messages.
        """
        self._check_gaps = check_gaps
        self._fail_on_damage = fail_on_damage
        self._unfiltered = unfiltered
        self._tags = split_expression(tags)
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._chunks: list[PulledRecords] = []
        self._rows = self._bytes = 0

    def add(self, chunk: PulledRecords) -> bool:
        """Add the records of a pull; True when there are enough for `batches`."""
        data = chunk.data
        self._chunks.append(chunk)
        self._bytes += len(data)
        # As many as if all were as large as the first: nobody has looked for the others yet.
        self._rows += len(data) // max(int.from_bytes(data[:4], "big"), FIXED_BYTES)
        return self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What was added, mostly one batch; afterwards there is nothing."""
        chunks, self._chunks = self._chunks, []
        self._rows = self._bytes = 0
        if not chunks:
            return
        records = _Records(chunks, fail_on_damage=self._fail_on_damage)
        if self._check_gaps is not None:
            for queue, gaps in records.missing_offsets().items():
                self._check_gaps(queue, gaps)
        if len(records):
            yield from self._batches_of(records)

    def _batches_of(self, records: _Records) -> Iterator[pa.RecordBatch]:
        wanted = None
        if self._tags:  # the broker compares hash codes, and several tags may have the same
            tags = records.parsed().values(b"TAGS")
            tagged = pc.is_in(tags, value_set=pa.array(self._tags))
            wanted = pc.or_(tagged, records.are_of(self._unfiltered))
        columns = {name: _COLUMNS[name](records) for name in self._columns if name != "body"}
        parts = records.bodies() if "body" in self._columns else iter((None,))
        at = 0
        for bodies in parts:
            count = len(records) if bodies is None else len(bodies)
            arrays = [
                columns[name].slice(at, count) if name in columns else bodies
                for name in self._columns
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if wanted is not None:
                batch = batch.filter(wanted.slice(at, count))
            if batch.num_rows:
                yield batch
            at += count


class _Records:
    """Some chunks, joined and measured: where every field of every record lies."""

    def __init__(self, chunks: Sequence[PulledRecords], *, fail_on_damage: bool) -> None:
        self._fail_on_damage = fail_on_damage
        self._data = b"".join([chunk.data for chunk in chunks])
        at, heads = record_heads(self._data)
        ends = np.cumsum([len(chunk.data) for chunk in chunks])
        counts = np.diff(np.searchsorted(at, ends), prepend=0)
        chunk_of = np.repeat(np.arange(len(chunks)), counts)
        offsets = heads["queue_offset"].astype(np.int64)
        wanted = offsets < np.array([chunk.end for chunk in chunks])[chunk_of]
        if not wanted.all():
            at, heads, offsets = at[wanted], chosen(heads, wanted), offsets[wanted]
            chunk_of = chunk_of[wanted]
        self.queues = [chunk.queue for chunk in chunks]
        self._nexts = [chunk.next for chunk in chunks]
        self.chunk_of = chunk_of
        self.heads = heads
        self.queue_offsets = offsets
        self._measure(at)
        self._properties: Properties | None = None

    def __len__(self) -> int:
        return len(self.chunk_of)

    def missing_offsets(self) -> dict[MessageQueue, list[range]]:
        """By queue, what is missing between records and behind the last one of an answer."""
        return missing_offsets(self.queues, self._nexts, self.chunk_of, self.queue_offsets)

    def _measure(self, at: Ints) -> None:
        """Find body and properties; every record must end where its length says."""
        self._at, heads = at, self.heads
        self.flags = heads["sys_flag"].astype(np.int64)
        self.store_ms = heads["store_ms"].astype(np.int64)
        self.reconsume_times = heads["reconsume_times"].astype(np.int32)
        body_sizes = heads["body_size"].astype(np.int64)
        self._body_at = at + HEAD.itemsize
        long = np.flatnonzero(self.flags & (_BORN_V6 | _STORE_V6))
        if len(long):
            last_at = self._host_at(long) + self._host_size(long)
            last = read_at(self._data, last_at, _LAST)
            self.store_ms[long] = read_at(self._data, self._host_at(long) - 8, _TIME)
            self.reconsume_times[long] = last["reconsume_times"]
            body_sizes[long] = last["body_size"]
            self._body_at[long] = last_at + _LAST.itemsize
        self._body_end = self._body_at + body_sizes
        ends = at + heads["size"].astype(np.int64)
        v2 = heads["mark"].astype(np.uint32) == MAGIC_V2
        require((body_sizes >= 0) & (self._body_end + 4 <= ends + ~v2))
        octets = np.frombuffer(self._data, np.uint8)
        size_at = self._body_end + 1 + octets[self._body_end]
        if v2.any():
            sizes = read_at(self._data, self._body_end[v2], _SHORT).astype(np.int64)
            size_at[v2] = self._body_end[v2] + 2 + sizes
        require(size_at + 2 <= ends)
        self._properties_at = size_at + 2
        self._properties_end = ends
        sizes = read_at(self._data, size_at, _SHORT).astype(np.int64)
        require(self._properties_at + sizes == ends)

    def _host_at(self, rows: Ints) -> Ints:
        """Where the address of the store begins in the records of these rows."""
        return self._at[rows] + 64 + np.where(self.flags[rows] & _BORN_V6, 12, 0)

    def _host_size(self, rows: Ints) -> Ints:
        """How many bytes that address and its port take."""
        return np.where(self.flags[rows] & _STORE_V6, 20, 8)

    def whole(self) -> pa.Array:
        """Each record as it is stored."""
        return byte_slices(pa.binary(), self._data, self._at, self._properties_end)

    def of_chunks(self, texts: list[str]) -> pa.Array:
        """For each record what its chunk has."""
        if texts.count(texts[0]) == len(texts):
            return repeated(texts[0], len(self))
        return pa.array(texts, pa.string()).take(pa.array(self.chunk_of))

    def are_of(self, topic: str) -> pa.Array:
        """For each record whether it was read from this topic."""
        found = np.array([queue.topic == topic for queue in self.queues])
        return pa.array(found[self.chunk_of])

    def bodies(self) -> Iterator[pa.Array]:
        """What was sent, in one part or several; null where it is damaged or can't be inflated.

        A message that nobody can inflate must not stop a stream for good. DamagedMessage: a
        checksum is wrong, and a loss is an error.
        """
        bodies = byte_slices(pa.binary(), self._data, self._body_at, self._body_end)
        damaged = self._damaged(bodies)
        if damaged.any():
            bodies = pc.if_else(pa.array(damaged), pa.scalar(None, pa.binary()), bodies)
        compressed = ((self.flags & _COMPRESSED) != 0) & ~damaged
        whole: list[bytes | None] = []
        unreadable: list[int] = []
        begin = size = 0
        for row in np.flatnonzero(compressed).tolist():
            body = self._data[int(self._body_at[row]) : int(self._body_end[row])]
            inflated = _inflated(body, int(self.flags[row]))
            whole.append(inflated)
            if inflated is None:
                unreadable.append(row)
                continue
            size += len(inflated)
            if size >= BYTES_MAX:
                part = _replaced(bodies[begin : row + 1], compressed[begin : row + 1], whole)
                begin, size, whole = row + 1, 0, []
                yield part
        self._note_unreadable(unreadable)
        if begin < len(self):
            yield _replaced(bodies[begin:], compressed[begin:], whole)

    def _note_unreadable(self, rows: list[int]) -> None:
        """Say once a batch which bodies are null because nobody can inflate them."""
        if rows:
            _log.warning(
                "%d bodies cannot be inflated, or would be larger than %d bytes, and are null: the "
                "first is %d of %s",
                len(rows),
                INFLATED_BYTES_MAX,
                int(self.queue_offsets[rows[0]]),
                self.queues[int(self.chunk_of[rows[0]])],
            )

    def _damaged(self, bodies: pa.Array) -> NDArray[np.bool_]:
        """Which bodies are not what their checksums say; DamagedMessage where that is an error."""
        pieces = bodies.to_numpy(zero_copy_only=False).tolist()  # measured: slices take five times
        sums = np.fromiter(map(crc32, pieces), np.int64, len(self))
        damaged: NDArray[np.bool_] = (sums & CRC_MASK) != self.heads["crc"]
        rows = np.flatnonzero(damaged).tolist()
        if rows:
            offset = int(self.queue_offsets[rows[0]])
            sentence = (
                f"the checksum of {len(rows)} bodies is wrong, the first is {offset} of "
                f"{self.queues[int(self.chunk_of[rows[0]])]}: damaged at the broker or on the way"
            )
            if self._fail_on_damage:
                raise DamagedMessage(f"{sentence}; failOnDataLoss=false reads them as null")
            _log.warning("%s; failOnDataLoss=false, they are null", sentence)
        return damaged

    def ids(self) -> pa.Array:
        """The client's own id, else the one made of store host and place in the log."""
        ids = self.parsed().values(b"UNIQ_KEY")
        if not ids.null_count:
            return ids
        missing = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        starts, sizes = self._host_at(missing), self._host_size(missing)
        places = self.heads["phy_offset"][missing]
        made = [
            (self._data[at : at + size] + place.to_bytes(8, "big", signed=True)).hex().upper()
            for at, size, place in zip(
                starts.tolist(), sizes.tolist(), places.tolist(), strict=True
            )
        ]
        return pc.replace_with_mask(ids, ids.is_null(), pa.array(made, pa.string()))

    def parsed(self) -> Properties:
        """The properties, cut at their separators once for all columns."""
        if self._properties is None:
            raw = byte_slices(pa.binary(), self._data, self._properties_at, self._properties_end)
            self._properties = Properties(raw)
        return self._properties


_COLUMNS: dict[str, Callable[[_Records], pa.Array]] = {
    "topic": lambda r: r.of_chunks([queue.topic for queue in r.queues]),
    "broker": lambda r: r.of_chunks([queue.broker_name for queue in r.queues]),
    "queue_id": lambda r: column(pa.int32(), r.heads["queue_id"].astype(np.int32)),
    "queue_offset": lambda r: column(pa.int64(), r.queue_offsets),
    "msg_id": lambda r: r.ids(),
    "keys": lambda r: r.parsed().values(b"KEYS"),
    "tags": lambda r: r.parsed().values(b"TAGS"),
    "properties": lambda r: r.parsed().as_map(),
    "born_ts": lambda r: _timestamps(r.heads["born_ms"].astype(np.int64)),
    "store_ts": lambda r: _timestamps(r.store_ms),
    "reconsume_times": lambda r: column(pa.int32(), r.reconsume_times),
    "sharding_key": lambda r: r.parsed().values(b"__SHARDINGKEY"),
    "phy_offset": lambda r: column(pa.int64(), r.heads["phy_offset"].astype(np.int64)),
    "record": lambda r: r.whole(),
}


def _replaced(
    bodies: pa.Array, which: NDArray[np.bool_], others: Sequence[bytes | None]
) -> pa.Array:
    if not others:
        return bodies
    return pc.replace_with_mask(bodies, pa.array(which), pa.array(others, pa.binary()))


def _inflated(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return inflate(body, sys_flag)
    except InvalidMessage:
        return None


def _timestamps(ms: Ints) -> pa.Array:
    return column(pa.timestamp("us", tz="UTC"), ms * 1000)
