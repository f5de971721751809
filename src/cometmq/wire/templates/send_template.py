"""Hot. The headers a producer writes again and again, recognised without decoding them.

Of one client's SEND_MESSAGE headers only a few values change from message to message: queue id,
born time, opaque, and the values of properties (`header_template` says how they are matched). A
template stands for messages with the same properties in the same order; where a producer's
messages have too many kinds of these, one takes all of the properties as they come. A signature
changes too; whether it is right, `is_signed` says.
Invariant: a match says what the decoder would say. One table per connection; JSON headers only;
bounded; no I/O. Java: none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.model.message import RESERVED_PROPERTIES
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from cometmq.wire.request_signature import SIGNATURE
from cometmq.wire.templates.header_template import (
    BYTES_A_BYTE,
    LAYOUT_KINDS,
    NUMBER,
    OPAQUE,
    PROPERTIES,
    QUEUE_ID,
    SHORT_TEXT,
    TEXT,
    HeaderPattern,
    HeaderTemplates,
    text_spans,
)
from cometmq.wire.templates.send_frame_batch import FrameColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.wire.command import Command
    from cometmq.wire.request_signature import SignatureCheck
    from cometmq.wire.templates.header_template import LearningLimiter, Span
    from cometmq.wire.templates.send_frame_batch import SendFrameBatch

KINDS_MAX = 4
"""So many kinds of properties of headers that are alike beside them, and one template takes any."""
COLUMNS_MAX = 16
"""So many layouts of whole frames are kept ready for one template; at one more all are dropped."""

_KINDS: dict[int, tuple[type[SendMessageRequestHeader], tuple[bytes, ...]]] = {
    int(RequestCode.SEND_MESSAGE): (
        SendMessageRequestHeader,
        (b"queueId", b"bornTimestamp", b"properties"),
    ),
    int(RequestCode.SEND_MESSAGE_V2): (SendMessageRequestHeaderV2, (b"e", b"g", b"i")),
    int(RequestCode.SEND_BATCH_MESSAGE): (SendMessageRequestHeaderV2, (b"e", b"g", b"i")),
}
_SIGNATURE = rb"([0-9A-Za-z+/]{27}=)"
"""20 bytes in base64."""
_is_send = re.compile(rb'"code"\s*:\s*(?:310|10|320)\b').search
_is_text = re.compile(TEXT).fullmatch
_MARK, _SEPARATOR = b"\\u0001", b"\\u0002"
_UNIQUE, _TAGS = "UNIQ_KEY", "TAGS"
LAYOUT_VALUES_MAX = 64
"""So many values a form in C has room for; a header of 4,096 bytes may have 270."""
_ANY_VALUE = frozenset((_UNIQUE, _TAGS, "KEYS", "__SHARDINGKEY"))
"""Properties of RocketMQ's that do not decide how a message goes; nor do the user's own."""


class SendTemplate:
    """What all headers that match have in common.

    `header` is the first one's, decoded: all its fields but `queue_id`, `born_timestamp` and
    `properties` hold for every match. `texts` cuts the properties' values out of the values of a
    match; `around` is what stands before, between and behind them. `unique_at` and `tags_at` say
    which of these texts are those of UNIQ_KEY and TAGS, -1 for none; with `takes_all` the only text
    is all of the properties, separators escaped. `check` says of what a signature covers, and the
    signature, whether they fit; None where nobody asks. `layout` is what
    `native/frames.c` matches by, None for headers that it cannot. `plan` is the user's, who may
    keep there what it derived, and must drop it (`forget`) when what it derived it from changes.
    """

    __slots__ = (
        "_columns",
        "around",
        "born_at",
        "check",
        "code",
        "flag",
        "header",
        "kept_bytes",
        "language",
        "layout",
        "literals",
        "match",
        "opaque_at",
        "plan",
        "prefix",
        "queue_at",
        "signature_at",
        "signed",
        "surroundings",
        "tags_at",
        "takes_all",
        "texts",
        "unique_at",
        "version",
    )

    def __init__(
        self,
        raw: bytes,
        command: Command,
        header: SendMessageRequestHeader,
        found: _FieldPlaces,
        check: SignatureCheck | None,
    ) -> None:
        self.header = header
        self.check = check
        self.around = found.around
        self.surroundings = found.surroundings
        self.code = command.code
        self.flag = command.flag
        self.language = command.language
        self.version = command.version
        self.takes_all = not found.names
        self.unique_at = found.names.index(_UNIQUE) if found.names else -1
        self.tags_at = found.names.index(_TAGS) if _TAGS in found.names else -1
        form = PROPERTIES if self.takes_all else TEXT
        gaps = dict(zip(found.numbers, (QUEUE_ID, NUMBER, OPAQUE), strict=True))
        gaps |= dict.fromkeys(found.texts, form)
        if found.names:
            gaps[found.texts[self.unique_at]] = SHORT_TEXT
        gaps |= dict.fromkeys(found.signature, _SIGNATURE)
        pattern = HeaderPattern(raw, gaps)
        self.match = pattern.match
        self.literals = pattern.literals
        self.prefix = pattern.literals[0]
        self.kept_bytes = BYTES_A_BYTE * len(raw)
        self.queue_at, self.born_at, self.opaque_at, first, *_ = pattern.ranks
        self.texts = slice(first, first + len(found.texts))  # they stand side by side
        self.signature_at = pattern.ranks[-1] if found.signature else -1
        self.signed = self._signed_content(command) if found.signature else None
        kinds = tuple([LAYOUT_KINDS.get(gaps[span], -1) for span in sorted(gaps)])
        numbers = (self.queue_at, self.born_at, self.opaque_at)
        is_known = -1 not in kinds and len(kinds) <= LAYOUT_VALUES_MAX and not check
        self.layout = (self.literals, kinds, *numbers, self.texts.start) if is_known else None
        self._columns: dict[tuple[int, ...], FrameColumns] = {}
        self.plan: Any = None

    def is_signed(self, values: tuple[bytes, ...], body: bytes) -> bool:
        """Whether a match with these values, and this body, has a signature that is right."""
        check, signed = self.check, self.signed
        if check is None:
            return True
        return signed is not None and check(signed.of(values) + body, values[self.signature_at])

    def _signed_content(self, command: Command) -> SignedContents:
        """What the signatures of all that match cover, but for the body."""
        queue, born, properties = map(bytes.decode, _KINDS[command.code][1])
        places: dict[str, tuple[int, ...]] = {queue: (self.queue_at,), born: (self.born_at,)}
        places[properties] = tuple(range(self.texts.start, self.texts.stop))
        return SignedContents(command.ext, places, properties, self.around, self.takes_all)

    def run_at(
        self, data: bytes, at: int, values: tuple[bytes, ...], body_max: int
    ) -> SendFrameBatch | None:
        """Take the frames from `at` on whose headers are of the same layout, two at least.

        The first of them has matched with these values. None: one by one, then.
        """
        sizes = tuple(map(len, values))
        columns = self._columns.get(sizes)
        if columns is None:
            if len(self._columns) >= COLUMNS_MAX:
                self._columns.clear()
            numbers = (self.queue_at, self.born_at, self.opaque_at)
            columns = self._columns[sizes] = FrameColumns(self.literals, sizes, numbers, self.texts)
        return columns.run_at(data, at, values, body_max)


class SignedContents:
    """The values of a header's fields in the order of their names, as a signature covers them."""

    __slots__ = ("_escaped_at", "_form", "_pick")

    def __init__(
        self,
        fields: Mapping[str, str],
        places: Mapping[str, tuple[int, ...]],
        properties: str,
        around: tuple[bytes, ...],
        takes_all: bool,
    ) -> None:
        """`places` are those of the values of a match in each field that changes.

        `properties` names the field that has `around` between its values.
        """
        form, picked = b"", list[int]()
        for name in sorted(fields):
            if name in places:
                picked += places[name]
                form += b"%b".join(map(_literal, around)) if name == properties else b"%b"
            elif name != SIGNATURE:
                form += _literal(fields[name].encode())
        self._form = form
        self._pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(*picked)
        self._escaped_at = picked.index(places[properties][0]) if takes_all else -1

    def of(self, values: tuple[bytes, ...]) -> bytes:
        """What the signature of a match with these values covers, but for the body."""
        picked = self._pick(values)
        at = self._escaped_at
        if at >= 0:
            picked = (*picked[:at], unescaped(picked[at]), *picked[at + 1 :])
        return self._form % picked


class SendHeaderMatch(NamedTuple):
    """A header that was recognised, as the decoder would give it. For those who have time."""

    template: SendTemplate
    values: tuple[bytes, ...]

    @property
    def queue_id(self) -> int:
        """The queue asked for."""
        return int(self.values[self.template.queue_at])

    @property
    def born_timestamp(self) -> int:
        """When the message was made, ms."""
        return int(self.values[self.template.born_at])

    @property
    def opaque(self) -> int:
        """The request's number."""
        return int(self.values[self.template.opaque_at])

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The values of properties."""
        return self.values[self.template.texts]

    @property
    def properties(self) -> bytes:
        """The whole properties."""
        if self.template.takes_all:
            return unescaped(self.texts[0])
        return filled(self.template, self.texts)

    def header(self) -> SendMessageRequestHeader:
        """The whole header."""
        return replace(
            self.template.header,
            queue_id=self.queue_id,
            born_timestamp=self.born_timestamp,
            properties=self.properties.decode(),
        )


class SendTemplates(HeaderTemplates[SendTemplate]):
    """The templates of one connection's sends."""

    def __init__(self, budget: LearningLimiter | None = None) -> None:
        super().__init__(_is_send, self._template, budget)
        self.check: SignatureCheck | None = None
        """The `check` of what is learned from now on."""

    def _template(self, raw: bytes, command: Command) -> SendTemplate | None:
        """The template of a header; None when it holds what a template cannot express."""
        header_class, names = _KINDS.get(command.code, (None, ()))
        signature = (SIGNATURE.encode(),) if SIGNATURE in command.ext else ()
        spans = None if header_class is None else text_spans(raw, (*names, *signature))
        if header_class is None or spans is None:
            return None
        queue, born, properties, *signatures, opaque = spans
        numbers = (queue, born, opaque)
        surroundings = _surroundings(raw, (*numbers, *signatures), properties)
        alike = [one for one in self.templates if one.surroundings == surroundings]
        found = _texts(raw, properties) if len(alike) < KINDS_MAX else None
        if found is None:  # whatever they are
            self.drop(alike)
            found = ((properties,), (), (b"", b""))
        header = header_class.decode(command.ext)
        places = _FieldPlaces(numbers, *found, surroundings, tuple(signatures))
        return SendTemplate(raw, command, header, places, self.check)


class _FieldPlaces(NamedTuple):
    """The places of what changes in one header.

    `names` are those of the properties whose values stand at `texts`; none: all of them do.
    """

    numbers: tuple[Span, Span, Span]
    texts: tuple[Span, ...]
    names: tuple[str, ...]
    around: tuple[bytes, ...]
    surroundings: bytes
    signature: tuple[Span, ...]
    """At most one."""


def _literal(text: bytes) -> bytes:
    """A text in which the percent sign is no gap."""
    return text.replace(b"%", b"%%")


def unescaped(raw: bytes) -> bytes:
    """Properties from a header as they are: the separators are the only escapes in them."""
    return raw.replace(_MARK, b"\x01").replace(_SEPARATOR, b"\x02")


def filled(template: SendTemplate, texts: tuple[bytes, ...]) -> bytes:
    """The whole properties, where these are the values that may differ."""
    first, *others = template.around
    return first + b"".join([b"".join(pair) for pair in zip(texts, others, strict=True)])


def _texts(
    header: bytes, properties: Span
) -> tuple[tuple[Span, ...], tuple[str, ...], tuple[bytes, ...]] | None:
    """The values that may differ, their names and what is around them.

    None when the properties are out of the ordinary, or have no UNIQ_KEY.
    """
    start, end = properties
    spans: list[Span] = []
    names: list[str] = []
    seen: set[bytes] = set()
    around, piece = [], b""
    for item in header[start:end].split(_SEPARATOR):
        name, mark, value = item.partition(_MARK)
        if (item and not _is_text(name + value)) or (item and name in seen):
            return None
        seen.add(name)
        at = start + len(name) + len(mark)
        start += len(item) + len(_SEPARATOR)
        piece += name + (b"\x01" if mark else b"")
        if value and _takes_any_value(name.decode()):
            names.append(name.decode())
            spans.append((at, at + len(value)))
            around.append(piece)
            piece = b"\x02"
        else:
            piece += value + b"\x02"
    around.append(piece[:-1])
    return (tuple(spans), tuple(names), tuple(around)) if _UNIQUE in names else None


def _takes_any_value(name: str) -> bool:
    return name in _ANY_VALUE or not (name in RESERVED_PROPERTIES or name.startswith("__"))


def _surroundings(header: bytes, numbers: tuple[Span, ...], properties: Span) -> bytes:
    """A header without what changes."""
    kept, at = [], 0
    for start, end in sorted((*numbers, properties)):
        kept.append(header[at:start])
        at = end
    return b"?".join((*kept, header[at:]))
