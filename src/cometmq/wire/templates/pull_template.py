"""Hot. The headers a consumer pulls with again and again, recognised without decoding them.

Of one consumer's PULL_MESSAGE headers only queue, offsets and opaque change from pull to pull
(`header_template` says how they are matched). Measured: 1 us instead of 6 for frame, command and
header. Invariant: a match says what the decoder would say. One table per connection; JSON headers
only; bounded; no I/O. Java: none.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.templates.header_template import (
    BYTES_A_BYTE,
    LAYOUT_KINDS,
    NUMBER,
    OPAQUE,
    QUEUE_ID,
    HeaderPattern,
    HeaderTemplates,
    text_spans,
)

if TYPE_CHECKING:
    from cometmq.wire.command import Command
    from cometmq.wire.templates.header_template import LearningLimiter, Span

_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_NAMES = (b"queueId", b"queueOffset", b"commitOffset")
_is_pull = re.compile(rb'"code"\s*:\s*(?:11|361)\b').search


class PullTemplate:
    """What all headers that match have in common.

    `header` is the first one's, decoded: all its fields but `queue_id`, `queue_offset` and
    `commit_offset` hold for every match. It is the user's, who may write those of a match into it.
    The other numbers are the places of these values and of the opaque among those of a match.
    """

    __slots__ = (
        "code",
        "commit_at",
        "form",
        "header",
        "kept_bytes",
        "language",
        "match",
        "offset_at",
        "opaque_at",
        "prefix",
        "queue_at",
        "version",
    )

    def __init__(self, raw: bytes, command: Command, spans: list[Span]) -> None:
        self.header = PullMessageRequestHeader.decode(command.ext)
        self.code = command.code
        self.language = command.language
        self.version = command.version
        forms = (QUEUE_ID, NUMBER, NUMBER, OPAQUE)
        gaps = dict(zip(spans, forms, strict=True))
        pattern = HeaderPattern(raw, gaps)
        self.match = pattern.match
        self.prefix = pattern.literals[0]
        self.kept_bytes = BYTES_A_BYTE * len(raw)
        self.queue_at, self.offset_at, self.commit_at, self.opaque_at = pattern.ranks
        kinds = tuple([LAYOUT_KINDS[gaps[span]] for span in sorted(gaps)])
        self.form = (pattern.literals, kinds, *pattern.ranks)
        """The same for `native.c.cut_pulls`."""


Pull = tuple[int, int, int, int, bytes]
"""Where its frame ends, queue id, queue offset, offset to commit, opaque in digits."""
_unpack_head = Struct(">II").unpack_from


class PullTemplates(HeaderTemplates[PullTemplate]):
    """The templates of one connection's pulls."""

    def __init__(self, budget: LearningLimiter | None = None) -> None:
        super().__init__(_is_pull, _template, budget)

    def cut(self, data: bytes, at: int) -> tuple[PullTemplate, list[Pull]] | None:
        """Cut the pulls at the head of a chunk that match the same template; None for no match.

        The frame that begins at `at` must be whole and have no body. In C several are cut at once.
        """
        recent = self.recent
        if native.c is not None and recent is not None:
            pulls = native.c.cut_pulls(data, at, recent.form)
            if pulls:
                self.misses = 0
                return recent, pulls
        total, length = _unpack_head(data, at)
        found = self.match_at(data, at + 8, at + 8 + length)
        if found is None:
            return None
        one, values = found
        numbers = int(values[one.queue_at]), int(values[one.offset_at]), int(values[one.commit_at])
        return one, [(at + 4 + total, *numbers, values[one.opaque_at])]


def _template(raw: bytes, command: Command) -> PullTemplate | None:
    """The template of a header; None when it holds what a template cannot express."""
    if command.code not in _CODES or command.flag:
        return None
    spans = text_spans(raw, _NAMES)
    return None if spans is None else PullTemplate(raw, command, spans)
