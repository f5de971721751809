"""Hot. The answer to a send, recognised by its shape and cut, not decoded.

A broker answers every send with the same header; only `opaque`, the queue, its offset and the ids
differ. The first answer is decoded and its layout kept by header length; those that follow are cut
there and compared; what stands in the gaps is taken as it is. Refuses to know who waits for an
answer. Invariant: of an answer that is well-formed it says the same as the decoder.
Java: none; SendMessageResponseHeader is decoded each time.
"""

from __future__ import annotations

import re
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from cometmq.wire.command import Command

LENGTHS_MAX = 256
"""Header lengths that are kept for one connection; at one more all are forgotten."""
PER_LENGTH_MAX = 8
"""Layouts of one length: where one number has a digit more and another one less."""
_CONSTANT = frozenset({"TRACE_ON", "MSG_REGION"})
_VARYING = frozenset({"queueId", "queueOffset", "msgId", "transactionId"})
_gaps = [
    re.compile(pattern).finditer
    for pattern in (
        rb'"opaque":([0-9]+)',
        rb'"queueId":"([0-9]+)"',
        rb'"queueOffset":"([0-9]+)"',
        rb'"msgId":"([0-9A-Fa-f,]+)"',
        rb'"transactionId":"([0-9A-Za-z]*)"',
    )
]
_unpack_head = Struct(">II").unpack_from


SendAnswer = tuple[int, int, str, str | None]
"""What the answer to a send that succeeded says: queue id, queue offset, offset id, transaction."""


class SendAnswers:
    """The layouts of one connection's answers."""

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        self._by_length: dict[int, tuple[_Layout, ...]] = {}

    def cut(self, data: bytes, wanted: Container[int]) -> tuple[list[tuple[int, SendAnswer]], int]:
        """Take known answers from the beginning of a chunk: each with its opaque, and their bytes.

        Stops at the first frame that is not whole, not known, or whose opaque is not wanted.
        """
        found: list[tuple[int, SendAnswer]] = []
        by_length = self._by_length
        at, size = 0, len(data)
        try:
            while size - at >= 8:
                total, length = _unpack_head(data, at)  # a JSON header: its type is 0
                if total != 4 + length or size - at < 4 + total:
                    break
                for layout in by_length.get(length, ()):
                    pieces = layout.split(data, at + 8)
                    if pieces[::2] == layout.fixed:
                        break
                else:
                    break
                opaque, queue, offset, msg_id, transaction = layout.values_of(pieces)
                number = int(opaque)
                if number not in wanted:
                    break
                text = transaction.decode() if transaction else None
                found.append((number, (int(queue), int(offset), msg_id.decode(), text)))
                at += 4 + total
        except ValueError:  # no number, no text: the decoder says what is wrong with it
            pass
        return found, at

    def learn(self, header: bytes, answer: Command) -> None:
        """Keep the layout of a decoded answer to a send; does nothing when it is out of the way."""
        names = answer.ext.keys()
        if answer.code or answer.remark is not None or names - _CONSTANT - _VARYING:
            return
        spans = list(_spans(header))
        if None in spans[:4] or ("transactionId" in names) != (spans[4] is not None):
            return
        if len(self._by_length) >= LENGTHS_MAX:
            self._by_length.clear()
        layout = _Layout(header, [span for span in spans if span])
        others = self._by_length.get(len(header), ())
        self._by_length[len(header)] = (layout, *others[: PER_LENGTH_MAX - 1])


class _Layout:
    """Where the values stand in headers of one length, and what stands around them."""

    __slots__ = ("fixed", "split", "values_of")

    def __init__(self, header: bytes, spans: list[tuple[int, int]]) -> None:
        ordered = sorted(spans)
        edges = [0, *(edge for span in ordered for edge in span), len(header)]
        cut = Struct("".join(f"{stop - start}s" for start, stop in pairwise(edges)) + "0s")
        self.split: Callable[..., tuple[bytes, ...]] = cut.unpack_from
        self.fixed = self.split(header, 0)[::2]
        places = [2 * ordered.index(span) + 1 for span in spans]
        # the empty piece at the end stands for a transaction id that is not there
        places = places if len(places) == 5 else [*places, len(edges) - 1]
        self.values_of: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(*places)


def _spans(header: bytes) -> Iterator[tuple[int, int] | None]:
    """Where each value stands: None when it is missing or stands there twice."""
    for find in _gaps:
        found = [match.span(1) for match in find(header)]
        yield found[0] if len(found) == 1 else None
