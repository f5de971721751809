"""Hot. Recognises the headers a consumer pulls with again and again, without decoding them.

Of one consumer's PULL_MESSAGE headers only queue, offsets and opaque change from pull to pull. Once
one has been decoded in full the places of those values are known; the next header of its length is
cut there, and when all bytes between the places are the same and the values are digits, it says
what the decoder would say. Measured: 1 us instead of 6 for frame, command and header.
Invariant: a match equals the ordinary decode. One object per connection; JSON headers only;
bounded; no I/O. Java: none.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING

from cometmq.errors import BadHeader, ProtocolError
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, Frame
from cometmq.wire.header_places import inside, places_in, splitter
from cometmq.wire.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.wire.header_places import Span

Fields = tuple["PullLayout", int, int, int, bytes]

LAYOUTS_MAX = 64
"""Most layouts of one connection; when one more comes, all are forgotten."""
PER_LENGTH_MAX = 4
"""Most layouts of one header length; the oldest goes first."""
HEADER_BYTES_MAX = 2048
"""Longest header that is learned."""
MISSES_MAX = 64
"""So many headers learned without one match in between, and learning pauses ..."""
PAUSE = 1024
"""... for so many."""

_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_GAPS = ((b"queueId", 9), (b"queueOffset", 18), (b"commitOffset", 18))
"""Names of the values that change, and how many digits are always a number of their size."""
_OPAQUE_DIGITS = 9
_ZERO = b"0"[0]
_is_pull = re.compile(rb'"code"\s*:\s*(?:11|361)\b').search


class PullLayout:
    """What all headers that match one layout have in common.

    `header` is the first one's, decoded: all its fields but `queue_id`, `queue_offset` and
    `commit_offset` hold for every match. It is the user's, who may write those of a match into it.
    """

    __slots__ = ("code", "header", "language", "numbers_of", "split", "surroundings", "version")

    def __init__(
        self, command: Command, header: PullMessageRequestHeader, raw: bytes, spans: list[Span]
    ) -> None:
        self.header, self.code = header, command.code
        self.language, self.version = command.language, command.version
        self.split, gaps = splitter(spans, 0, len(raw))
        self.numbers_of: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(
            *[gaps[span] for span in spans]
        )
        self.surroundings = self.split(raw)[::2]


class PullTemplates:
    """The layouts of one connection."""

    __slots__ = ("_by_length", "_count", "_misses", "_pause")

    def __init__(self) -> None:
        self._by_length: dict[int, list[PullLayout]] = {}
        self._count = self._misses = self._pause = 0

    def match_at(self, data: bytes, at: int, length: int) -> Fields | None:
        """What the header of `length` bytes at `at` says; None when only the decoder can tell.

        Layout, queue id, queue offset, commit offset, and the opaque in digits. Never raises when
        the header is all there.
        """
        for one in self._by_length.get(length, ()):
            parts = one.split(data, at)
            if parts[::2] == one.surroundings:
                numbers = one.numbers_of(parts)
                queue, offset, commit, opaque = numbers
                if b"".join(numbers).isdigit() and opaque[0] != _ZERO:
                    self._misses = 0
                    return one, int(queue), int(offset), int(commit), opaque
        return None

    def see(self, header: bytes) -> None:
        """Learn a header that is a consumer's and not known yet. Never raises."""
        if len(header) > HEADER_BYTES_MAX or not _is_pull(header):
            return
        if self._pause:
            self._pause -= 1
            return
        if self.match_at(header, 0, len(header)) is not None:
            return
        try:
            command = Command.decode(Frame(JSON, header, b""))
            layout = _layout(header, command)
        except (ProtocolError, BadHeader):
            return
        self._misses += 1
        if self._misses > MISSES_MAX:
            self._misses, self._pause = 0, PAUSE
        if layout is not None:
            self._add(len(header), layout)

    def _add(self, length: int, layout: PullLayout) -> None:
        if self._count >= LAYOUTS_MAX:
            self._by_length.clear()
            self._count = 0
        same_length = self._by_length.setdefault(length, [])
        same_length.insert(0, layout)
        self._count += 1
        if len(same_length) > PER_LENGTH_MAX:
            same_length.pop()
            self._count -= 1


def _layout(raw: bytes, command: Command) -> PullLayout | None:
    """The layout of a header, None when it holds what a layout cannot express."""
    if command.code not in _CODES or command.flag:
        return None
    places = places_in(raw)
    if places is None:
        return None
    spans: list[Span] = []
    for name, digits_max in _GAPS:
        span = inside(raw, places.get((True, name)))
        if span is None or not _is_number(raw, span, digits_max):
            return None
        spans.append(span)
    opaque = places.get((False, b"opaque"))
    if opaque is None or not _is_number(raw, opaque, _OPAQUE_DIGITS) or raw[opaque[0]] == _ZERO:
        return None
    spans.append(opaque)
    return PullLayout(command, PullMessageRequestHeader.decode(command.ext), raw, spans)


def _is_number(raw: bytes, span: Span, digits_max: int) -> bool:
    start, end = span
    return end - start <= digits_max and raw[start:end].isdigit()
