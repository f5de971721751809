"""Tables of a broker as answers: large ones are encoded in time slices, and once for each version.

Owns the bytes of the last version of each large table. Refuses to know what is in a table: whoever
asks gives the answer without its entries, and what encodes some of them.
Invariant: the bytes are those that encoding all at once gives; whoever asks while they are made
waits for them.
Java: none; a thread encodes each answer anew.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import Reject
from cometmq.wire import fastjson
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from cometmq.runtime.time_slices import TimeSlices

SMALL_MAX = 200
"""Entries of a table that is encoded at once: about 2 ms."""

_RUN = 1_000

ANSWER_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES_MAX
"""The largest body of an answer: clients refuse larger frames."""

_V = TypeVar("_V")


class LargeTableAnswers:
    """The large tables of one broker. Belongs to its loop."""

    def __init__(self, time_slices: TimeSlices, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self.time_slices = time_slices
        """Shared by all that encodes in time slices."""
        self._bytes_max = bytes_max
        self._kept: dict[str, tuple[Hashable, bytes]] = {}
        self._names: dict[str, tuple[Hashable, list[str]]] = {}

    async def encode(
        self,
        name: str,
        version: Hashable,
        empty: bytes,
        table: Mapping[str, _V],
        fields: Callable[[_V], object],
    ) -> bytes:
        """The answer `empty`, whose table of this name has no entries, with them.

        Raises Reject where no frame can hold it.
        """
        async with self.time_slices.lock:
            known = self._kept.get(name)
            if known is None or known[0] != version:
                known = version, await self._encode(name, empty, table, fields)
                self._kept[name] = known
        return known[1]

    async def fill(
        self, name: str, empty: bytes, entries: Iterable[bytes], *, count: int | None = None
    ) -> bytes:
        """The answer `empty`, whose table or list of this name is empty, with these entries.

        They are made in time slices, but for those that are few by their `count`: these wait for
        nobody. Raises Reject where no frame can hold them.
        """
        if count is not None and count <= SMALL_MAX:
            return filled(empty, name, b",".join(entries))
        async with self.time_slices.lock:
            return await self._fill(name, empty, entries)

    async def encode_page(
        self,
        name: str,
        empty: bytes,
        names: Iterable[str],
        table: Mapping[str, _V],
        fields: Callable[[_V], object],
    ) -> bytes:
        """The answer `empty` with the entries of these names, as far as the table has them."""
        made = (fastjson.dumps({key: fields(table[key])})[1:-1] for key in names if key in table)
        return await self.fill(name, empty, made)

    async def sorted_names(
        self, name: str, version: Hashable, table: Mapping[str, object]
    ) -> list[str]:
        """The names of a table in order, worked out once for each version of it."""
        async with self.time_slices.lock:
            known = self._names.get(name)
            if known is None or known[0] != version:
                pieces = await self.time_slices.collect(sorted_pieces(list(table)))
                known = self._names[name] = version, list(filter(None, pieces))
        return known[1]

    async def _encode(
        self, name: str, empty: bytes, table: Mapping[str, _V], fields: Callable[[_V], object]
    ) -> bytes:
        made = (fastjson.dumps({key: fields(value)})[1:-1] for key, value in list(table.items()))
        return await self._fill(name, empty, made)

    async def _fill(self, name: str, empty: bytes, entries: Iterable[bytes]) -> bytes:
        def bounded() -> Iterator[bytes]:
            size = len(empty)
            for entry in entries:
                size += len(entry) + 1
                check_size(name, size, self._bytes_max)
                yield entry

        return filled(empty, name, b",".join(await self.time_slices.collect(bounded())))


def filled(empty: bytes, name: str, entries: bytes) -> bytes:
    """The object `empty` with these entries in its table or list of this name, which has none."""
    for begin, end in (b"{}", b"[]"):
        mark = b'"%b":%c' % (name.encode(), begin)
        if empty.count(mark + bytes([end])) == 1:
            return empty.replace(mark + bytes([end]), mark + entries + bytes([end]))
    raise AssertionError(f"there is one empty table {name}")


def sorted_pieces(names: list[str]) -> Iterator[str]:
    """Names in order, each a little work; empty ones in between only take their time."""
    runs = []
    for at in range(0, len(names), _RUN):
        runs.append(sorted(names[at : at + _RUN]))
        yield ""
    yield from merge(*runs)


def check_size(name: str, size: int, bytes_max: int = ANSWER_BYTES_MAX) -> None:
    """Raise Reject where an answer of this size fits into no frame."""
    if size > bytes_max:
        raise Reject(
            ResponseCode.SYSTEM_ERROR,
            f"the {name} has {size} bytes and an answer at most {bytes_max}: ask for pages of it, "
            "or for single entries",
        )
