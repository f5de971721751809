"""Hot. Recognises the headers a producer writes again and again, without decoding them.

Of one client's SEND_MESSAGE headers only a few values change from message to message. Once one has
been decoded in full the places of those values are known, and the next header is cut there: when
all bytes between the places are the same and the values are plain, it says the same as the decoder
would say. Two kinds of layout, tried in this order:

    steady    header of fixed length; gaps: queue id, born time, opaque, and the values of UNIQ_KEY,
              KEYS, the sharding key and the user's own properties
    changing  gaps: queue id, born time, opaque, and all of the properties, of any length

What does not fit is left to the decoder, which is always right. Invariant: a match equals the
ordinary decode. One object per connection; JSON headers only; bounded; no I/O.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.errors import BadHeader, ProtocolError
from cometmq.model.message import RESERVED_PROPERTIES
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, Frame
from cometmq.wire.header_places import inside, places_in, splitter
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.send_run import PLAIN, QUEUE_IDS, SendFrames

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.wire.header_places import Span
    from cometmq.wire.send_run import SendRun

Fields = tuple["SendLayout", int, int, bytes, tuple[bytes, ...]]

LAYOUTS_MAX = 128
"""Most steady layouts of one connection; when one more comes, all are forgotten."""
PER_LENGTH_MAX = 4
"""Most steady layouts of one header length; the oldest goes first."""
CHANGING_MAX = 8
"""Most layouts with changing properties of one connection."""
STEADY_MAX = 16
"""So many properties learned for the same surroundings, and they count as changing."""
HEADER_BYTES_MAX = 4096
"""Longest header that is learned."""
MISSES_MAX = 64
"""So many headers learned without one match in between, and learning pauses ..."""
PAUSE = 1024
"""... for so many."""

_KINDS: dict[int, tuple[type[SendMessageRequestHeader], bytes, bytes, bytes]] = {
    int(RequestCode.SEND_MESSAGE): (
        SendMessageRequestHeader,
        b"queueId",
        b"bornTimestamp",
        b"properties",
    ),
    int(RequestCode.SEND_MESSAGE_V2): (SendMessageRequestHeaderV2, b"e", b"g", b"i"),
}
_is_send = re.compile(rb'"code"\s*:\s*(?:310|10)\b').search
_is_plain_text = re.compile(rb"[ !#-\[\]-~]*").fullmatch
_MARK, _SEPARATOR = b"\\u0001", b"\\u0002"
_UNIQUE = "UNIQ_KEY"
_STORED_ONLY = frozenset((_UNIQUE, "KEYS", "__SHARDINGKEY"))
"""Properties of RocketMQ's whose value nothing is decided by; the user's own are such, too."""
_ZERO = b"0"[0]


class SendLayout:
    """What all headers that match one layout have in common.

    `header` is the first one's, decoded: all its fields but `queue_id`, `born_timestamp` and
    `properties` hold for every match. The properties are the pieces of `around` with the texts of
    the match between them. Where `is_steady` the texts are single values, of at least one plain
    character each, and `unique_at` says which of them is that of UNIQ_KEY;
    else the only text is all of the properties. `plan` is the user's, who may keep there what it
    derived, and must drop it (`SendTemplates.forget`) when what it derived it from changes.
    """

    __slots__ = (
        "around",
        "code",
        "flag",
        "header",
        "is_steady",
        "language",
        "plan",
        "unique_at",
        "version",
    )

    def __init__(
        self,
        command: Command,
        header: SendMessageRequestHeader,
        around: tuple[bytes, ...] = (b"", b""),
        unique_at: int = -1,
    ) -> None:
        self.header, self.around, self.unique_at = header, around, unique_at
        self.is_steady = unique_at >= 0
        self.code, self.flag = command.code, command.flag
        self.language, self.version = command.language, command.version
        self.plan: Any = None


class SendFields(NamedTuple):
    """A header that was recognised: what it shares with others, and its own values.

    `opaque` is kept in digits, as the answer repeats it.
    """

    layout: SendLayout
    queue_id: int
    born_timestamp: int
    opaque: bytes
    texts: tuple[bytes, ...]

    @property
    def properties(self) -> bytes:
        """The whole properties, as the decoder gives them."""
        first, *others = self.layout.around
        return first + b"".join([b"".join(pair) for pair in zip(self.texts, others, strict=True)])

    def header(self) -> SendMessageRequestHeader:
        """Return the header as the decoder gives it."""
        return replace(
            self.layout.header,
            queue_id=self.queue_id,
            born_timestamp=self.born_timestamp,
            properties=self.properties.decode(),
        )


class SendTemplates:
    """The layouts of one connection."""

    __slots__ = (
        "_born",
        "_born_ms",
        "_by_length",
        "_changing",
        "_count",
        "_last",
        "_learned",
        "_misses",
        "_pause",
    )

    def __init__(self) -> None:
        self._misses = self._pause = 0
        self._born, self._born_ms = b"0", 0
        self.forget()

    def forget(self) -> None:
        """Forget all layouts, and with them what users keep in their plans."""
        self._by_length: dict[int, list[_Steady]] = {}
        self._changing: list[_Changing] = []
        self._learned: dict[bytes, int] = {}
        self._count = 0
        self._last: _Steady | None = None

    def match(self, header: bytes) -> SendFields | None:
        """Return what the header says, or None when only the decoder can tell."""
        fields = self.match_at(header, 0, len(header))
        return None if fields is None else SendFields(*fields)

    def match_at(self, data: bytes, at: int, length: int) -> Fields | None:
        """The same for a header of `length` bytes that stands at `at` and is all there.

        A bare tuple in the order of SendFields: making those was measured to take 0.1 us.
        """
        for one in self._by_length.get(length, ()):
            parts = one.split(data, at)
            if parts[::2] == one.fixed:
                queue, born, opaque = one.numbers_of(parts)
                if born != self._born and born.isdigit():
                    self._born, self._born_ms = born, int(born)  # the same for a while
                queue_id, texts = QUEUE_IDS.get(queue), parts[one.texts]
                if (
                    queue_id is not None
                    and born == self._born
                    and opaque.isdigit()
                    and opaque[0] != _ZERO
                    and not b"".join(texts).translate(None, PLAIN)
                ):
                    self._misses = 0
                    self._last = one
                    return one.layout, queue_id, self._born_ms, opaque, texts
        return self._match_changing(data[at : at + length]) if self._changing else None

    def run_at(self, data: bytes, at: int, body_max: int) -> SendRun | None:
        """Match whole frames from `at` on that have the layout of the last match, two at least.

        None: one by one, then. Bodies have 1 to `body_max` bytes. The checks are those of
        `match_at`, made of all frames together: measured, 0.6 to 0.85 us a frame instead of 1.3.
        """
        return None if self._last is None else self._last.frames.run_at(data, at, body_max)

    def see(self, header: bytes) -> SendFields | None:
        """Match, or else learn the header if it is a sender's. Never raises.

        For a caller that has not decoded the header and will do so when it gets None.
        """
        fields = self.match(header)
        if fields is None and len(header) <= HEADER_BYTES_MAX and _is_send(header):
            if self._pause:
                self._pause -= 1
                return None
            try:
                self.learn(header, Command.decode(Frame(JSON, header, b"")))
            except ProtocolError:
                return None
        return fields

    def learn(self, header: bytes, command: Command) -> None:
        """Learn a JSON header from its decoded form; does nothing when it is not fit for that."""
        found = _find(header, command)
        self._misses += 1
        if self._misses > MISSES_MAX:
            self._misses, self._pause = 0, PAUSE
        if found is None:
            return
        if self._count >= LAYOUTS_MAX or len(self._learned) >= 4 * LAYOUTS_MAX:
            self.forget()
        times = self._learned.get(found.surroundings, 0)
        texts = found.texts(header) if times < STEADY_MAX else None
        if texts is None:
            self._learned[found.surroundings] = STEADY_MAX
            self._add_changing(_Changing(SendLayout(command, found.header), header, found))
        else:
            self._learned[found.surroundings] = times + 1
            layout = SendLayout(command, found.header, texts.around, texts.unique_at)
            self._add_steady(len(header), _Steady(layout, header, found, texts.spans))

    def _match_changing(self, header: bytes) -> Fields | None:
        for one in self._changing:
            end = len(header) - one.after_size
            if end < one.before_size:
                continue
            before, after = one.split_before(header), one.split_after(header, end)
            if before[::2] != one.fixed_before or after[::2] != one.fixed_after:
                continue
            queue, born, opaque = one.values_of(before + after)
            queue_id = QUEUE_IDS.get(queue)
            properties = _plain_text(header[one.before_size : end])
            if properties is None or queue_id is None or not _are_plain(born, opaque):
                return None
            self._misses = 0
            return one.layout, queue_id, int(born), opaque, (properties,)
        return None

    def _add_steady(self, length: int, steady: _Steady) -> None:
        same_length = self._by_length.setdefault(length, [])
        same_length.insert(0, steady)
        if len(same_length) > PER_LENGTH_MAX:
            same_length.pop()
        else:
            self._count += 1

    def _add_changing(self, changing: _Changing) -> None:
        for same_length in self._by_length.values():  # they would only be tried in vain
            same_length[:] = [s for s in same_length if s.surroundings != changing.surroundings]
        self._count = sum(map(len, self._by_length.values()))
        self._changing.insert(0, changing)
        del self._changing[CHANGING_MAX:]


class _Steady:
    """Cuts headers of one length at all gaps, and the frames of such headers."""

    __slots__ = (
        "fixed",
        "frames",
        "layout",
        "numbers_of",
        "split",
        "surroundings",
        "texts",
        "unique_at",
    )

    def __init__(
        self, layout: SendLayout, header: bytes, found: _Found, texts: tuple[Span, ...]
    ) -> None:
        self.layout, self.unique_at = layout, layout.unique_at
        self.surroundings = found.surroundings
        self.split, gaps = splitter((*found.numbers, *texts), 0, len(header))
        self.numbers_of: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(
            *[gaps[span] for span in found.numbers]
        )
        self.texts = slice(gaps[texts[0]], gaps[texts[-1]] + 1, 2)  # they stand side by side
        self.fixed = self.split(header)[::2]
        pieces = self.split(header)
        numbers = tuple([gaps[span] for span in found.numbers])
        self.frames = SendFrames(layout, pieces, numbers, self.texts)


class _Changing:
    """Cuts headers of any length at three gaps and takes the properties out."""

    __slots__ = (
        "after_size",
        "before_size",
        "fixed_after",
        "fixed_before",
        "layout",
        "split_after",
        "split_before",
        "surroundings",
        "values_of",
    )

    def __init__(self, layout: SendLayout, header: bytes, found: _Found) -> None:
        self.layout, self.surroundings = layout, found.surroundings
        start, end = found.properties
        self.before_size, self.after_size = start, len(header) - end
        before = [span for span in found.numbers if span[1] <= start]
        after = [span for span in found.numbers if span[0] >= end]
        self.split_before, gaps = splitter(before, 0, start)
        self.split_after, later_gaps = splitter(after, end, len(header))
        gaps |= {span: index + 2 * len(before) + 1 for span, index in later_gaps.items()}
        self.values_of: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(
            *[gaps[span] for span in found.numbers]
        )
        self.fixed_before = self.split_before(header)[::2]
        self.fixed_after = self.split_after(header, end)[::2]


class _Texts(NamedTuple):
    """Where values stand that are stored and nothing else, and the properties around them."""

    spans: tuple[Span, ...]
    around: tuple[bytes, ...]
    unique_at: int


class _Found(NamedTuple):
    """The places of what changes in one header, and the header decoded."""

    header: SendMessageRequestHeader
    numbers: tuple[Span, Span, Span]
    properties: Span
    surroundings: bytes

    def texts(self, header: bytes) -> _Texts | None:
        """Find the values that may differ; None when properties stand there in no plain way."""
        start, end = self.properties
        spans: list[Span] = []
        around, piece, names = [], b"", set()
        unique_at = -1
        for item in header[start:end].split(_SEPARATOR):
            name, mark, value = item.partition(_MARK)
            if not _is_plain_text(name + value) or (item and name in names):
                return None
            names.add(name)
            at = start + len(name) + len(mark)
            start += len(item) + len(_SEPARATOR)
            piece += name + (b"\x01" if mark else b"")
            if value and _is_stored_only(name.decode()):
                if name.decode() == _UNIQUE:
                    unique_at = len(spans)
                spans.append((at, at + len(value)))
                around.append(piece)
                piece = b"\x02"
            else:
                piece += value + b"\x02"
        around.append(piece[:-1])
        if unique_at < 0 or not header[slice(*spans[unique_at])].isalnum():
            return None
        return _Texts(tuple(spans), tuple(around), unique_at)


def _is_stored_only(name: str) -> bool:
    return name in _STORED_ONLY or not (name in RESERVED_PROPERTIES or name.startswith("__"))


def _find(header: bytes, command: Command) -> _Found | None:
    kind = _KINDS.get(command.code)
    places = places_in(header) if kind and len(header) <= HEADER_BYTES_MAX else None
    if kind is None or places is None:
        return None
    header_class, *names = kind
    texts = [inside(header, places.get((True, name))) for name in names]
    opaque = places.get((False, b"opaque"))
    queue_at, born_at, properties_at = texts
    if queue_at is None or born_at is None or properties_at is None or opaque is None:
        return None
    numbers = (queue_at, born_at, opaque)
    queue, born, number = (header[start:end] for start, end in numbers)
    if queue not in QUEUE_IDS or not _are_plain(born, number) or len(born) > 18 or len(number) > 9:
        return None
    try:
        decoded = header_class.decode(command.ext)
    except BadHeader:
        return None
    return _Found(decoded, numbers, properties_at, _surroundings(header, numbers, properties_at))


def _surroundings(header: bytes, numbers: tuple[Span, ...], properties: Span) -> bytes:
    blank = bytearray(header)
    for start, end in numbers:
        blank[start:end] = b"?" * (end - start)
    del blank[properties[0] : properties[1]]
    return bytes(blank)


def _are_plain(born: bytes, opaque: bytes) -> bool:
    """Whether both are digits; the bare number must not start with 0 to be JSON."""
    return born.isdigit() and opaque.isdigit() and opaque[0] != _ZERO


def _plain_text(raw: bytes) -> bytes | None:
    """Return what stands between two quotes, None when only a JSON decoder can tell."""
    if b'"' in raw:
        return None
    text = raw.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
    if b"\\" in text:
        return None
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    return text
