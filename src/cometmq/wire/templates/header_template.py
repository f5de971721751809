"""Hot. Recognises JSON headers that a client writes again and again, without decoding them.

Only a few values change from one header of a kind to the next. Once a header was decoded in full,
a template keeps the text between those values and matches later headers with one regular
expression: the text must be the same, and each value of a form that needs no decoder. What does
not match is left to the decoder, which is always right. Templates are found by the text before
the first value, so that a client of a hundred topics does not have each header compared with all.
Refuses to know what headers mean (`send_template` and `pull_template` do). Invariants: a match
says what the decoder would say; the templates of a connection are bounded, and so are the time in
which all connections learn and the memory of what they have learned. No I/O.
Java: none; every header is decoded there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from cometmq.errors import BadHeader, ProtocolError
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Span = tuple[int, int]
"""First byte of a value and the byte behind its last."""

TEMPLATES_MAX = 128
"""Most templates of one connection; the oldest is dropped for one more."""
SAME_PREFIX_MAX = 32
"""Most of them that begin alike, for these are tried one by one."""
HEADER_BYTES_MAX = 4096
"""Longest header that is learned."""
MISSES_MAX = TEMPLATES_MAX
"""So many headers learned without one match in between, and the connection pauses learning ..."""
PAUSE = 4096
"""... for so many."""
LEARNING_SHARE = 0.1
"""Most of the time in which headers are learned, of all connections together."""
LEARNING_AT_ONCE_MS = 20
"""So long may be learned at once after so much time in which nothing was."""
LEARNED_BYTES_MAX = 256 * 1024 * 1024
"""Memory of what all connections together have learned: 50,000 headers of 250 bytes."""
BYTES_A_BYTE = 20
"""What a template keeps for each byte of its header: a pattern, mostly. Measured: 12 to 20."""

QUEUE_ID = rb"(0|[1-9][0-9]{0,2}|10[01][0-9]|102[0-3])"
"""0 to 1023."""
NUMBER = rb"([0-9]{1,18})"
"""Digits that fit into 64 bits."""
OPAQUE = rb"([1-9][0-9]{0,8})"
"""A bare number of JSON, which has no leading zero; of the longest ones only a decoder can tell
whether they fit into 32 bits."""
_ASCII = rb"[ !#-\[\]-\x7f]"
SHORT_TEXT = rb"(%b{1,1024}+)" % _ASCII
"""Text for which an answer has room: no quote, no escape, no control character."""
_UTF_8 = (
    rb"(?:[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
"""A character beyond ASCII (Unicode, table 3-7)."""
TEXT = rb"(%b++)" % _ASCII
"""The same of any length."""
PROPERTIES = rb"((?:%b++|\\u000[12]|%b)*+)" % (_ASCII, _UTF_8)
"""Such text, beyond ASCII as well, with the two separators of properties, escaped; maybe empty."""
LAYOUT_KINDS = {QUEUE_ID: 0, NUMBER: 1, OPAQUE: 2, TEXT: 3, SHORT_TEXT: 4}
"""What `native/headers.h` calls the forms of values that it knows."""

_entry = re.compile(
    rb'\s*"([^"\\]*)"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.0-9eE]+|true|false|null|\{)\s*', re.DOTALL
).match
_QUOTE = b'"'[0]


class HeaderPattern:
    """The text of a header around the values that change, and what matches the like of it."""

    __slots__ = ("literals", "match", "ranks")

    def __init__(self, header: bytes, gaps: dict[Span, bytes]) -> None:
        """`gaps` says of what form the value in each span is: one group of a regular expression.

        `ranks` are the places of these values, in the order of `gaps`, among those of a match.
        """
        ordered = sorted(gaps)
        edges = [0, *(edge for span in ordered for edge in span), len(header)]
        self.literals = tuple([header[edges[at] : edges[at + 1]] for at in range(0, len(edges), 2)])
        pattern = re.escape(self.literals[0])
        for span, literal in zip(ordered, self.literals[1:], strict=True):
            pattern += gaps[span] + re.escape(literal)
        self.match: Callable[..., re.Match[bytes] | None] = re.compile(pattern).fullmatch
        self.ranks = tuple([ordered.index(span) for span in gaps])


class LearnedHeaders(Protocol):
    """What one connection has learned of one kind."""

    def give_up(self) -> None:
        """Forget all of it, and `keep` 0 bytes."""
        ...


class LearningLimiter:
    """How long all connections of one server may learn, and how much of it they may keep.

    The decoder takes what they leave. To learn a header takes 0.5 ms, of the longest 10 ms, and a
    client may send a new one each time, on many connections. The time is measured: a pattern that
    the module `re` still has costs little, and little is taken off for it. Where all have learned
    too much, whoever has learned most forgets it.
    """

    __slots__ = ("_bytes_max", "_kept", "_left_ms", "_monotonic_ms", "_seen_ms", "kept_bytes")

    def __init__(self, monotonic_ms: Callable[[], int], bytes_max: int = LEARNED_BYTES_MAX) -> None:
        """Begin with all that may be learned at once."""
        self.kept_bytes = 0
        """Memory of what all have learned, about."""
        self._bytes_max = bytes_max
        self._kept: dict[LearnedHeaders, int] = {}
        self._monotonic_ms = monotonic_ms
        self._seen_ms = monotonic_ms()
        self._left_ms: float = LEARNING_AT_ONCE_MS

    def spend(self, learn: Callable[[bytes], None], header: bytes) -> None:
        """Learn a header if there is time left for it."""
        now_ms = self._monotonic_ms()
        earned_ms = (now_ms - self._seen_ms) * LEARNING_SHARE
        self._seen_ms = now_ms
        self._left_ms = min(LEARNING_AT_ONCE_MS, self._left_ms + earned_ms)
        if self._left_ms > 0:
            learn(header)
            self._left_ms -= self._monotonic_ms() - now_ms

    def keep(self, learner: LearnedHeaders, size: int) -> None:
        """Note how many bytes somebody keeps now."""
        self.kept_bytes += size - self._kept.pop(learner, 0)
        if size:
            self._kept[learner] = size
        while self.kept_bytes > self._bytes_max:
            max(self._kept, key=self._kept.__getitem__).give_up()


class _Template(Protocol):
    """What a table of templates asks of each."""

    match: Callable[..., re.Match[bytes] | None]
    prefix: bytes
    """The text before the first value that changes."""
    kept_bytes: int
    """How much memory it takes, about."""


T = TypeVar("T", bound=_Template)


class HeaderTemplates(Generic[T]):
    """The templates of one connection for requests of one kind."""

    __slots__ = (
        "_budget",
        "_by_prefix",
        "_is_candidate",
        "_make",
        "_pause",
        "misses",
        "recent",
        "templates",
    )

    def __init__(
        self,
        is_candidate: Callable[[bytes], object],
        make: Callable[[bytes, Command], T | None],
        budget: LearningLimiter | None,
    ) -> None:
        """`is_candidate` finds out quickly what may be worth decoding; `make` learns from it.

        `budget` is that of all connections; None for no bound.
        """
        self._budget = budget
        self._is_candidate = is_candidate
        self._make = make
        self.misses = 0
        """Headers learned since the last match."""
        self._pause = 0
        self.recent: T | None = None
        """What matched last: tried first, because most connections send to one topic."""
        self._by_prefix: dict[int, dict[bytes, list[T]]] = {}
        """The templates by the length of their prefix, then by the prefix."""
        self.templates: tuple[T, ...] = ()
        """All of them, the newest first."""

    def match_at(self, data: bytes, at: int, end: int) -> tuple[T, tuple[bytes, ...]] | None:
        """The template of the header between two places and its own values; None for no match."""
        recent = self.recent
        if recent is not None and (found := recent.match(data, at, end)) is not None:
            self.misses = 0
            return recent, found.groups()
        for length, by_prefix in self._by_prefix.items():
            for template in by_prefix.get(data[at : at + length], ()):
                found = template.match(data, at, end)
                if found is not None:
                    self.misses = 0
                    self.recent = template
                    return template, found.groups()
        return None

    def forget(self) -> None:
        """Forget all templates, and with them what users keep there."""
        self._replace(())

    def give_up(self) -> None:
        """Forget all templates and learn nothing for a while: others need the memory."""
        self.forget()
        self._pause = PAUSE

    def drop(self, templates: Sequence[T]) -> None:
        """Forget these templates."""
        self._replace(tuple([one for one in self.templates if one not in templates]))

    def match_or_learn(self, header: bytes) -> tuple[T, tuple[bytes, ...]] | None:
        """Match a header; learn it where it is one of this kind that is not known. Never raises."""
        found = self.match_at(header, 0, len(header))
        if found is None and self.is_wanted(header):
            self.learn(header)
        return found

    def is_wanted(self, header: bytes) -> bool:
        """Whether a header that does not match should be learned; asked once about each."""
        if len(header) > HEADER_BYTES_MAX or not self._is_candidate(header):
            return False
        if self._pause:
            self._pause -= 1
            return False
        return True

    def learn(self, header: bytes) -> None:
        """Learn a header, if there is time left for it. Never raises."""
        if self._budget is None:
            self._learn(header)
        else:
            self._budget.spend(self._learn, header)

    def _learn(self, header: bytes) -> None:
        try:
            template = self._make(header, Command.decode(Frame(JSON, header, b"")))
        except (ProtocolError, BadHeader):
            return
        self.misses += 1
        if self.misses > MISSES_MAX:
            self.misses = 0
            self._pause = PAUSE
        if template is not None and template.match(header) is not None:
            self._add(template)

    def _add(self, template: T) -> None:
        """Add a template; the oldest of the same prefix, or of all, makes room."""
        alike = [one for one in self.templates if one.prefix == template.prefix]
        self.drop(alike[SAME_PREFIX_MAX - 1 :])
        self._replace((template, *self.templates[: TEMPLATES_MAX - 1]))

    def _replace(self, templates: tuple[T, ...]) -> None:
        """Have these templates, and no others."""
        self.templates = templates
        self.recent = None
        self._by_prefix = {}
        for one in templates:
            by_prefix = self._by_prefix.setdefault(len(one.prefix), {})
            by_prefix.setdefault(one.prefix, []).append(one)
        if self._budget is not None:
            self._budget.keep(self, sum([one.kept_bytes for one in templates]))


def value_spans(header: bytes) -> dict[tuple[bool, bytes], Span] | None:
    """Return where each value stands: (in extFields?, name) to its bytes, quotes included.

    The header has passed a JSON decoder; None when it holds anything out of the ordinary.
    """
    spans: dict[tuple[bool, bytes], Span] = {}
    at, is_inner = header.find(b"{") + 1, False
    while entry := _entry(header, at):
        name = (is_inner, entry[1])
        if name in spans:
            return None
        spans[name] = entry.span(2)
        at = entry.end()
        if entry[2] == b"{":
            if name != (False, b"extFields"):
                return None
            is_inner = True
            continue
        while is_inner and header[at : at + 1] == b"}":
            is_inner, at = False, _skip_blanks(header, at + 1)
        if header[at : at + 1] == b"}":
            return spans if _skip_blanks(header, at + 1) == len(header) else None
        if header[at : at + 1] != b",":
            return None
        at += 1
    return None


def text_spans(header: bytes, names: Sequence[bytes]) -> list[Span] | None:
    """Where the texts of these fields in extFields and the number `opaque` stand, in that order.

    None when one is missing or no text, or when the header is out of the ordinary.
    """
    spans = value_spans(header)
    if spans is None or (False, b"opaque") not in spans:
        return None
    found = []
    for name in names:
        start, end = spans.get((True, name), (0, 0))
        if header[start] != _QUOTE:
            return None
        found.append((start + 1, end - 1))
    return [*found, spans[False, b"opaque"]]


def _skip_blanks(header: bytes, at: int) -> int:
    while header[at : at + 1].isspace():
        at += 1
    return at
