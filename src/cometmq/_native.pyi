"""Signatures of the compiled loops; each is described beside its definition in `native/`."""

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any, Protocol, TypeVar

_Queue = Any
_Entry = tuple[_Queue, int, int, int]
_Shape = tuple[int, int, bytes, bool]
_Buffer = bytes | bytearray | memoryview | mmap
_Words = Any
_Message = TypeVar("_Message")
_Result = TypeVar("_Result")

class HotLoops(Protocol):
    """The module, for type checkers alone: a protocol, so that it can be None at its users.

    Every argument is given by position.
    """

    EDITION: int
    BATCH_MESSAGES_MAX: int

    def append_entries(self, entries: list[_Entry], /) -> set[tuple[_Queue, int]]: ...
    def batch_records(
        self,
        shape: _Shape,
        behind: bytes,
        queue: _Queue,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        born_ms: int,
        bodies: Sequence[bytes],
        raws: Sequence[bytes],
        codes: Sequence[int],
        /,
    ) -> tuple[bytes, list[_Entry], list[int]]: ...
    def batch_results(
        self,
        kind: type[_Result],
        shared: tuple[Any, ...],
        ids: list[str],
        first: int,
        offset_ids: str,
        /,
    ) -> list[_Result] | None: ...
    def chain_keys(
        self,
        slots: _Words,
        hashes: _Words,
        places: _Words,
        times: _Words,
        begin_ms: int,
        first: int,
        /,
    ) -> tuple[bytes, int]: ...
    def checksum_by_tables(self, data: bytes, /) -> int: ...
    def cut_pulls(
        self, data: bytes, at: int, form: tuple[Any, ...], /
    ) -> list[tuple[int, int, int, int, bytes]]: ...
    def decode_batch(
        self, body: bytes, at: int, count: int, /
    ) -> tuple[list[int], list[bytes], list[bytes], int]: ...
    def exchange(self, socket: int, frame: bytes, /) -> bytes | int: ...
    def fill_keys(self, body: bytearray, keys: list[str], /) -> None: ...
    def gather(
        self, buffer: _Buffer, base: int, places: tuple[int, ...], sizes: tuple[int, ...], /
    ) -> bytes | None: ...
    def measure_records(
        self, bodies: Sequence[bytes], raws: Sequence[bytes], fixed_bytes: int, with_sum: bool, /
    ) -> tuple[int, int, int]: ...
    def number_keys(self, text: str, first: int, count: int, /) -> list[str]: ...
    def one_record(
        self,
        shape: _Shape,
        behind: bytes,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        born_ms: int,
        body: bytes,
        raw: bytes,
        /,
    ) -> bytes: ...
    def pack_messages(
        self,
        messages: list[_Message],
        kind: type[_Message],
        tail_of: Callable[[str | None], bytes | None],
        key_bytes: int,
        most: int,
        /,
    ) -> bytearray | None: ...
    def plain_tag_codes(
        self, raws: list[bytes], marks: tuple[bytes, ...], /
    ) -> list[int] | None: ...
    def put_batch(
        self,
        body: bytes,
        count_max: int,
        marks: tuple[bytes, ...],
        shape: _Shape,
        behind: bytes,
        queues: list[_Queue | None],
        open_queue: Callable[[int], _Queue],
        queue_id: int,
        phy_offset: int,
        room: int,
        born_ms: int,
        properties_max: int,
        size_max: int,
        host: bytes,
        /,
    ) -> tuple[bytes, list[_Entry], bytes, int] | None: ...
    def put_frames(
        self,
        data: bytes,
        at: int,
        form: tuple[object, ...],
        shape: _Shape,
        behind: bytes,
        queues: list[_Queue | None],
        phy_offset: int,
        room: int,
        body_max: int,
        properties_max: int,
        size_max: int,
        open_queue: Callable[[int], _Queue],
        /,
    ) -> tuple[int, int, list[bytes], list[_Entry], list[bytes]]: ...
    def read_keys(
        self, chunk: bytes, at: int, index: int, limit: int, count: int, entries_max: int, /
    ) -> tuple[int, int, bytes, bytes, bytes]: ...
    def read_records(
        self, entries: bytes, file: _Buffer, file_bytes: int, base: int, bytes_max: int, /
    ) -> tuple[int, bytes] | None: ...
