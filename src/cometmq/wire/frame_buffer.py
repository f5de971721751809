"""Hot. Cuts frames out of the memory a socket reads into, without copying their bodies.

One per connection. What is read goes straight to `room`; a frame lies there until the next read, so
whoever keeps its body copies it. Large frames cost no memory of their own: the room grows to the
size they need and is kept for the next ones, up to `KEPT_BYTES`.
Refuses to know sockets, headers and codes. Invariant: the frames are those of `FrameDecoder`, and
after the first byte that cannot be a frame nothing comes out.
Java: none; NettyDecoder takes each frame from Netty's pooled buffers.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from cometmq.errors import ProtocolError
from cometmq.wire.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX

LEAST_BYTES = 64 * 1024
"""The room of a connection at rest; larger reads were measured to be no faster for small frames."""
KEPT_BYTES = 2 * 1024 * 1024
"""A room larger than that is given back once the frame it was needed for is read."""

_unpack_head = Struct(">II").unpack_from


class FrameView(NamedTuple):
    """One frame as it came; `body` is only there until the next read."""

    serialize_type: int
    header: bytes
    body: memoryview


class FrameBuffer:
    """Room for a socket to read into, and the frames in it. Never raises."""

    __slots__ = ("_bytes_max", "_end", "_start", "_view", "broken")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.broken: ProtocolError | None = None
        self._bytes_max = bytes_max
        self._view = memoryview(bytearray(LEAST_BYTES))
        self._start = self._end = 0

    def room(self) -> memoryview:
        """Where the next bytes of the stream belong; never empty."""
        start, end, view = self._start, self._end, self._view
        if start == end:
            self._start = self._end = 0
            if len(view) > KEPT_BYTES:
                view = self._view = memoryview(bytearray(LEAST_BYTES))
            return view
        if end == len(view) or (start and end - start >= 8 and start + self._wanted() > len(view)):
            self._move()
        return self._view[self._end :]

    def came(self, count: int) -> None:
        """Take note that so many bytes were put there."""
        self._end += count

    def chunk(self) -> memoryview:
        """All bytes that are not taken yet."""
        return self._view[self._start : self._end]

    def skip(self, count: int) -> None:
        """Take the first bytes of the chunk, whole frames that somebody has read there."""
        self._start += count

    def next(self) -> FrameView | None:
        """The next whole frame; None when more must come first, or when the stream is broken."""
        start, end, view = self._start, self._end, self._view
        if end - start < 8 or self.broken:
            return None
        total, mark = _unpack_head(view, start)
        length = mark & 0xFFFFFF
        body_at, stop = start + 8 + length, start + 4 + total
        if body_at > stop or total > self._bytes_max - 4 or length > HEADER_BYTES_MAX:
            self.broken = ProtocolError(
                f"no RocketMQ frame: length {total}, header type and length {mark:#010x}, "
                f"where at most {self._bytes_max} bytes are allowed, {HEADER_BYTES_MAX} of header"
            )
            return None
        if stop > end:
            return None
        self._start = stop
        return FrameView(mark >> 24, bytes(view[start + 8 : body_at]), view[body_at:stop])

    def _wanted(self) -> int:
        """How long the frame is that has begun to come."""
        return 4 + int(_unpack_head(self._view, self._start)[0])

    def _move(self) -> None:
        """Put the frame that has begun to come at the front, in a larger room if it is full."""
        start, end, old = self._start, self._end, self._view
        size, new = end - start, old
        if size * 2 > len(old):  # grows as the bytes come, not as a peer says they will
            new = self._view = memoryview(bytearray(len(old) * 2))
        new[:size] = old[start:end]
        self._start = 0
        self._end = size
