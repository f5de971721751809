"""Turns the records of a pull into an Arrow batch, column by column, without message objects.

The record layout is read in vectors. One Python step per record finds where it begins. Then numpy
reads each fixed field of all records at once (through windows that overlap byte by byte), and
Arrow's `take` copies the variable ones out of the answer's bytes.
Invariant: the same bytes give the same batch; bytes that are not records raise ProtocolError.
Layout: total:4 magic:4 crc:4 queueId:4 flag:4 queueOffset:8 phyOffset:8 sysFlag:4 bornTime:8
bornHost:4|16+4 storeTime:8 storeHost:4|16+4 reconsume:4 prepared:8 bodyLen:4 body topicLen:1|2
topic propsLen:2 props, where props = (key 0x01 value 0x02)*.    Java: MessageDecoder.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.errors import DamagedMessage, InvalidMessage, ProtocolError
from cometmq.rules.filters.tag_expressions import split_expression
from cometmq.spark.source.columns import arrow_schema
from cometmq.wire.compression import inflate
from cometmq.wire.records import properties
from cometmq.wire.records.log_record import CRC_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cometmq.model.queue import MessageQueue

    Ints = NDArray[np.int64]

_log = logging.getLogger(__name__)

ROWS_MAX = 4096
"""A batch is returned once it has this many rows ..."""
BYTES_MAX = 4 * 1024 * 1024
"""... or stored records of this size."""

_MAGIC_V1, _MAGIC_V2 = 0xDAA320A7 - (1 << 32), 0xDAA320AB - (1 << 32)
_RECORD_BYTES_MIN = 91
_COMPRESSED, _BORN_V6, _STORE_V6 = 0x1, 0x10, 0x20
_HIDDEN = b"__CRC32#"

_size_at = Struct(">i").unpack_from
_FIRST = np.dtype(
    [
        ("total", ">i4"),
        ("magic", ">i4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
_STORE = np.dtype([("store_ms", ">i8")])
_LAST = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")])


class PulledRecords(NamedTuple):
    """Records of one queue as one pull brought them; those at `end` and above do not count."""

    queue: MessageQueue
    end: int
    data: bytes


class BatchBuilder:
    """Collects pulled records until they are enough for a batch; `tags` filters the messages.

    A batch ends with the pull that reaches `ROWS_MAX` or `BYTES_MAX`, so it may exceed them by one
    pull; a message larger than `BYTES_MAX` gets a batch of its own.
    """

    def __init__(
        self, columns: Sequence[str], tags: str = "*", *, fail_on_damage: bool = True
    ) -> None:
        """`fail_on_damage`: a body whose checksum is wrong is a DamagedMessage, else null."""
        self._fail_on_damage = fail_on_damage
        self._tags = split_expression(tags)
        self._columns = tuple(columns)
        self._schema = arrow_schema(columns)
        self._chunks: list[PulledRecords] = []
        self._starts: list[list[int]] = []
        self._rows = self._bytes = 0

    def add(self, chunk: PulledRecords) -> pa.RecordBatch | None:
        """Add the records of a pull; return a batch when there are enough."""
        starts = record_starts(chunk.data)
        self._chunks.append(chunk)
        self._starts.append(starts)
        self._rows += len(starts)
        self._bytes += len(chunk.data)
        if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
            return self.finish()
        return None

    def finish(self) -> pa.RecordBatch | None:
        """Return what is left as a batch, or None when nothing is."""
        if not self._rows:
            return None
        records = _Records(self._chunks, self._starts, fail_on_damage=self._fail_on_damage)
        self._chunks = []
        self._starts = []
        self._rows = 0
        self._bytes = 0
        if not len(records):
            return None
        arrays = [_COLUMNS[name](records) for name in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._tags:  # the broker compares hash codes, and several tags may have the same
            tags = records.parsed().values(b"TAGS")
            batch = batch.filter(pc.is_in(tags, value_set=pa.array(self._tags)))
        return batch if batch.num_rows else None


def record_starts(data: bytes) -> list[int]:
    """Where each record of a pull's body begins; raises ProtocolError for inconsistent sizes."""
    starts: list[int] = []
    at, end = 0, len(data)
    while at < end:
        if end - at < _RECORD_BYTES_MIN:
            raise ProtocolError(f"a pull's body ends with {end - at} bytes that are not a record")
        starts.append(at)
        (size,) = _size_at(data, at)
        if size < _RECORD_BYTES_MIN:
            raise ProtocolError(f"a pull's body holds a record of {size} bytes at {at}")
        at += size
    if at != end:
        raise ProtocolError(f"the last record of a pull's body lacks {at - end} bytes")
    return starts


class _Records:
    """Some chunks, joined and measured: where every field of every record lies."""

    def __init__(
        self,
        chunks: Sequence[PulledRecords],
        starts: Sequence[list[int]],
        *,
        fail_on_damage: bool,
    ) -> None:
        self._fail_on_damage = fail_on_damage
        self._data = b"".join([chunk.data for chunk in chunks])
        at = _joined(chunks, starts)
        chunk_of = np.repeat(np.arange(len(chunks)), [len(one) for one in starts])
        first = _read_at(self._data, at, _FIRST)
        range_ends = np.array([chunk.end for chunk in chunks])[chunk_of]
        wanted = first["queue_offset"] < range_ends
        if not wanted.all():
            at, chunk_of, first = at[wanted], chunk_of[wanted], first[wanted]
        self.queues = [chunk.queue for chunk in chunks]
        self.chunk_of = chunk_of
        self.first = first
        self._measure(at)
        self._entries: _Entries | None = None

    def __len__(self) -> int:
        return len(self.chunk_of)

    def _measure(self, at: Ints) -> None:
        """Find body and properties; every record must end where its length says."""
        first = self.first
        v2 = first["magic"] == _MAGIC_V2
        if not (v2 | (first["magic"] == _MAGIC_V1)).all():
            raise ProtocolError("a pull's body holds bytes without the mark of a message")
        flags = first["sys_flag"]
        self._host_at = at + 64 + np.where(flags & _BORN_V6, 12, 0)
        self._host_size = np.where(flags & _STORE_V6, 16, 4)
        self.store = _read_at(self._data, self._host_at - 8, _STORE)
        last_at = self._host_at + self._host_size + 4
        self.last = _read_at(self._data, last_at, _LAST)
        self._body_at = last_at + _LAST.itemsize
        self._body_end = self._body_at + self.last["body_size"]
        octets = np.frombuffer(self._data, np.uint8)
        ends = at + first["total"]
        _require((self._body_at <= self._body_end) & (self._body_end + 4 <= ends + ~v2))
        topic_size = octets[self._body_end].astype(np.int64)
        topic_size[v2] = topic_size[v2] * 256 + octets[self._body_end[v2] + 1]
        size_at = self._body_end + 1 + v2 + topic_size
        _require(size_at + 2 <= ends)
        self._properties_at = size_at + 2
        self._properties_end = ends
        sizes = octets[size_at].astype(np.int64) * 256 + octets[size_at + 1]
        _require(self._properties_at + sizes == ends)

    def of_chunks(self, texts: list[str]) -> pa.Array:
        """For each record what its chunk has."""
        if texts.count(texts[0]) == len(texts):
            return pa.repeat(texts[0], len(self))
        return pa.array(texts, pa.string()).take(pa.array(self.chunk_of))

    def bodies(self) -> pa.Array:
        """What was sent, inflated where the producer had compressed it; null where that fails.

        A message that nobody can inflate must not stop a stream for good. DamagedMessage: a
        checksum is wrong, and a loss is an error.
        """
        bodies = _slices(pa.binary(), self._data, self._body_at, self._body_end)
        damaged = self._damaged()
        if damaged.any():
            bodies = pc.if_else(pa.array(damaged), pa.scalar(None, pa.binary()), bodies)
        flags = self.first["sys_flag"]
        compressed = ((flags & _COMPRESSED) != 0) & ~damaged
        if not compressed.any():
            return bodies
        spans = zip(
            flags[compressed].tolist(),
            self._body_at[compressed].tolist(),
            self._body_end[compressed].tolist(),
            strict=True,
        )
        whole = [_inflated(self._data[begin:end], flag) for flag, begin, end in spans]
        return pc.replace_with_mask(bodies, pa.array(compressed), pa.array(whole, pa.binary()))

    def _damaged(self) -> NDArray[np.bool_]:
        """Which bodies are not what their checksums say; DamagedMessage where that is an error."""
        view = memoryview(self._data)
        spans = zip(self._body_at.tolist(), self._body_end.tolist(), strict=True)
        sums = np.array([crc32(view[begin:end]) for begin, end in spans], np.int64)
        damaged: NDArray[np.bool_] = (sums & CRC_MASK) != self.first["crc"]
        rows = np.flatnonzero(damaged).tolist()
        if rows:
            offset = int(self.first["queue_offset"][rows[0]])
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
        made = [self._offset_id(row) for row in missing.tolist()]
        return pc.replace_with_mask(ids, ids.is_null(), pa.array(made, pa.string()))

    def _offset_id(self, row: int) -> str:
        at = int(self._host_at[row])
        host = self._data[at : at + int(self._host_size[row]) + 4]
        place = int(self.first["phy_offset"][row])
        return (host + place.to_bytes(8, "big", signed=True)).hex().upper()

    def parsed(self) -> _Entries:
        """The properties, cut at their separators once for all columns."""
        if self._entries is None:
            raw = _slices(pa.binary(), self._data, self._properties_at, self._properties_end)
            self._entries = _Entries(raw)
        return self._entries


class _Entries:
    """The properties of all records, cut at their separators: entry i is one key and value."""

    def __init__(self, raw: pa.Array) -> None:
        data, ends = _contents(raw)
        cut = _separators(data, ends)
        if cut is None:  # some client wrote them loosely; ours and Java's never do
            tidy = [properties.encode(properties.decode(text)) for text in raw.to_pylist()]
            data, ends = _contents(pa.array(tidy, pa.binary()))
            cut = _separators(data, ends)
            assert cut is not None, "properties encoded by us are well formed"
        self._data = data
        self._key_at, self._key_end, self._value_end = cut
        self._bounds = np.searchsorted(self._value_end, ends)
        self._row_of = np.repeat(np.arange(len(raw)), np.diff(self._bounds))
        pieces = (self._key_at, self._key_end, self._key_end + 1, self._value_end)
        offsets = np.append(np.column_stack(pieces).ravel(), len(data)).astype(np.int32)
        # Four pieces an entry: key, 0x01, value, 0x02.
        self._pieces = pa.Array.from_buffers(
            pa.string(),
            len(offsets) - 1,
            [None, pa.py_buffer(offsets), pa.py_buffer(data)],
        )

    def values(self, key: bytes) -> pa.Array:
        """The value of one property for each record, null where it has none."""
        entry_of = np.full(len(self._bounds) - 1, -1)
        found = self._having(key)
        entry_of[self._row_of[found]] = found
        return self._pieces.take(pa.array(entry_of * 4 + 2, mask=entry_of < 0))

    def as_map(self) -> pa.Array:
        """All properties of each record; the checksum that brokers append is not shown."""
        kept = np.delete(np.arange(len(self._value_end)), self._having(_HIDDEN))
        bounds = np.searchsorted(kept, self._bounds).astype(np.int32)
        return pa.MapArray.from_arrays(
            pa.array(bounds),
            self._pieces.take(pa.array(kept * 4)),
            self._pieces.take(pa.array(kept * 4 + 2)),
        )

    def _having(self, key: bytes) -> Ints:
        """Which entries have this key."""
        sized = np.flatnonzero(self._key_end - self._key_at == len(key))
        if not len(sized):
            return sized
        names = _read_at(self._data, self._key_at[sized], np.dtype(f"S{len(key)}"))
        found: Ints = sized[names == key]
        return found


_COLUMNS: dict[str, Callable[[_Records], pa.Array]] = {
    "topic": lambda r: r.of_chunks([queue.topic for queue in r.queues]),
    "broker": lambda r: r.of_chunks([queue.broker_name for queue in r.queues]),
    "queue_id": lambda r: pa.array(r.first["queue_id"].astype(np.int32)),
    "queue_offset": lambda r: pa.array(r.first["queue_offset"].astype(np.int64)),
    "msg_id": lambda r: r.ids(),
    "keys": lambda r: r.parsed().values(b"KEYS"),
    "tags": lambda r: r.parsed().values(b"TAGS"),
    "body": lambda r: r.bodies(),
    "properties": lambda r: r.parsed().as_map(),
    "born_ts": lambda r: _timestamps(r.first["born_ms"]),
    "store_ts": lambda r: _timestamps(r.store["store_ms"]),
    "reconsume_times": lambda r: pa.array(r.last["reconsume_times"].astype(np.int32)),
    "sharding_key": lambda r: r.parsed().values(b"__SHARDINGKEY"),
    "phy_offset": lambda r: pa.array(r.first["phy_offset"].astype(np.int64)),
}


def _joined(chunks: Sequence[PulledRecords], starts: Sequence[list[int]]) -> Ints:
    """Where the records begin once the chunks are joined."""
    parts = []
    base = 0
    for chunk, inside in zip(chunks, starts, strict=True):
        parts.append(np.array(inside, np.int64) + base)
        base += len(chunk.data)
    return np.concatenate(parts)


def _read_at(data: bytes | NDArray[np.uint8], at: Ints, kind: np.dtype[Any]) -> NDArray[Any]:
    """The bytes at each of these places, read as `kind`: one copy, no loop."""
    _require(at + kind.itemsize <= len(data))
    every = np.ndarray(
        (len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", buffer=data, strides=(1,)
    )
    return every[at].view(kind)


def _slices(kind: pa.DataType, data: bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The slices `data[start:end]`, which must be in order and apart, as one Arrow array."""
    offsets = np.zeros(2 * len(starts) + 1, np.int32)
    offsets[1::2] = starts
    offsets[2::2] = ends
    # Every second piece is a slice, the others are what lies between.
    pieces = pa.Array.from_buffers(
        kind, 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(1, 2 * len(starts), 2)))


def _contents(raw: pa.Array) -> tuple[NDArray[np.uint8], Ints]:
    """The bytes of a binary array one after the other, and its n + 1 bounds."""
    _, bounds, content = raw.buffers()
    ends = np.frombuffer(bounds, np.int32, len(raw) + 1).astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    return data[: ends[-1]], ends


def _separators(data: NDArray[np.uint8], ends: Ints) -> tuple[Ints, Ints, Ints] | None:
    """Where keys begin and end and where values end, or None unless all is key 0x01 value 0x02."""
    key_end, value_end = np.flatnonzero(data == 1), np.flatnonzero(data == 2)
    key_at = np.concatenate(([0], value_end + 1))[: len(value_end)]
    filled = ends[1:][ends[1:] > ends[:-1]]
    if len(key_end) < len(value_end) or not (data[filled - 1] == 2).all():
        return None
    if len(key_end) > len(value_end):  # values may hold 0x01: the first one after a key counts
        key_end = key_end[np.searchsorted(key_end, key_at).clip(max=len(key_end) - 1)]
    if not ((key_end > key_at).all() and (value_end > key_end + 1).all()):
        return None
    return key_at, key_end, value_end


def _inflated(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return inflate(body, sys_flag)
    except InvalidMessage:
        return None


def _timestamps(ms: Ints) -> pa.Array:
    return pa.array(ms.astype(np.int64) * 1000).cast(pa.timestamp("us", tz="UTC"))


def _require(fits: NDArray[np.bool_]) -> None:
    if not fits.all():
        raise ProtocolError("a pull's body holds a record whose lengths contradict each other")
