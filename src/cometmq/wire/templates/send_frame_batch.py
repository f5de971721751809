"""Hot. Cuts frames of sends that stand one behind the other in a chunk and have one layout.

What `send_template` does with one header, done with many: all values of one kind are looked at
together. Refuses to know how a layout was learned. Invariant: a frame is taken only if the template
would have matched its header. Measured with 64 frames a chunk: 0.5 us a frame instead of 1.2.
Java: none.
"""

from __future__ import annotations

from itertools import accumulate, chain, pairwise
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    _Split = Callable[[memoryview], Iterable[tuple[bytes, ...]]]

PLAIN = bytes(byte for byte in range(32, 128) if byte not in b'"\\')
"""What a text may hold whose bytes mean themselves."""
QUEUE_IDS = {b"%d" % number: number for number in range(1024)}
"""The queue ids that are taken, by their digits."""
_ZERO = b"0"[0]
SIZES_MAX = 16
"""So many sizes of frames are cut by one call each; at one more all are dropped."""

Columns = tuple[tuple[bytes, ...], ...]
"""One after the other the values of each header, those of one kind together."""

Cut = tuple[Columns, "Sequence[bytes]", "Sequence[int]"]
"""The values of the headers, the bodies, and where each frame ends."""


class SendFrameBatch(NamedTuple):
    """Frames of one layout that stand one behind the other, column by column."""

    queue_ids: list[int]
    born_ms: list[int]
    opaques: tuple[bytes, ...]
    """In digits, as the answers repeat them."""
    texts: tuple[tuple[bytes, ...], ...]
    """One after the other the values of each text."""
    bodies: Sequence[bytes]
    ends: Sequence[int]
    """Where each frame ends in the chunk."""


class FrameColumns:
    """Cuts frames whose headers have the same text around values of the same sizes.

    A value that was the same in all frames so far (a tag, say) is cut out as part of the text.
    """

    __slots__ = (
        "_arrange",
        "_constant",
        "_fixed",
        "_head_bytes",
        "_numbers",
        "_spans",
        "_split",
        "_split_alike",
        "_texts",
    )

    def __init__(
        self,
        literals: tuple[bytes, ...],
        sizes: tuple[int, ...],
        numbers: tuple[int, int, int],
        texts: slice,
    ) -> None:
        """Take the text of a header and how long the values between are.

        `numbers` are the places of queue id, born time and opaque among the values, `texts` those
        of all the others.
        """
        length = sum(map(len, literals)) + sum(sizes)
        self._head_bytes = 8 + length
        self._fixed = (length.to_bytes(4, "big") + literals[0], *literals[1:])
        widths = list(chain.from_iterable(zip(map(len, self._fixed), (*sizes, 0), strict=True)))
        form = ">I" + "".join([f"{width}s" for width in widths])
        self._split: Callable[..., tuple[Any, ...]] = Struct(form).unpack_from
        edges = list(accumulate(widths, initial=4))
        self._spans = tuple(zip(edges[1:-2:2], edges[2:-2:2], strict=True))
        self._numbers = numbers
        self._texts = texts
        self._set_constant([at for at in range(len(sizes)) if at not in numbers])

    def run_at(
        self, data: bytes, at: int, values: tuple[bytes, ...], body_max: int
    ) -> SendFrameBatch | None:
        """Take the frames from `at` on that are all there, two at least; None: one by one, then.

        The header of the first has matched with these values. Bodies have 1 to `body_max` bytes.
        """
        cut = self._cut_alike(data, at, values, body_max) or self._cut(data, at, body_max)
        return None if cut is None else self._checked(*cut)

    def _set_constant(self, constant: list[int]) -> None:
        """Take these values as part of the text from now on, by their places."""
        self._constant = constant
        self._split_alike: dict[int, _Split] = {}
        others = [at for at in range(len(self._spans)) if at not in constant]
        order = [*others, *constant]
        self._arrange: Callable[[Columns], Columns] = itemgetter(
            *[order.index(at) for at in range(len(order))]
        )

    def _cut(self, data: bytes, at: int, body_max: int) -> Cut | None:
        """The pieces of all frames up to the first whose header is another."""
        split, fixed, head_bytes, size = self._split, self._fixed, self._head_bytes, len(data)
        rows, bodies, ends = [], [], []
        while size - at > head_bytes:
            parts = split(data, at)
            if parts[1::2] != fixed:
                break
            body_at, at = at + head_bytes, at + 4 + parts[0]
            if not body_at < at <= size or at - body_at > body_max:
                break
            rows.append(parts)
            bodies.append(data[body_at:at])
            ends.append(at)
        if len(rows) < 2:
            return None
        columns = tuple(zip(*rows, strict=True))[2:-1:2]
        constant = [at for at in self._constant if _is_one(columns[at])]
        if constant != self._constant:
            self._set_constant(constant)
        return columns, bodies, ends

    def _cut_alike(
        self, data: bytes, at: int, values: tuple[bytes, ...], body_max: int
    ) -> Cut | None:
        """The same for frames of one size, by one call: measured, 0.3 us less a frame.

        All text must be that of the first frame, which has matched.
        """
        size = 4 + int.from_bytes(data[at : at + 4], "big")
        count = (len(data) - at) // size
        following, end = at + size, at + count * size
        last, body_bytes = end - size, size - self._head_bytes
        if count < 2 or not 0 < body_bytes <= body_max:
            return None
        if not data[at : at + 4] == data[following : following + 4] == data[last : last + 4]:
            return None
        split = self._split_alike.get(body_bytes) or self._learn(body_bytes)
        columns = tuple(zip(*split(memoryview(data)[at:end]), strict=True))
        for column in columns[::2]:
            if not _is_one(column):
                return None
        same = [(values[at],) * count for at in self._constant]
        found = self._arrange((*columns[1:-1:2], *same))
        return found, columns[-1], range(following, end + 1, size)

    def _learn(self, body_bytes: int) -> _Split:
        """What cuts frames with bodies of this size."""
        if len(self._split_alike) >= SIZES_MAX:
            self._split_alike.clear()
        own = [span for at, span in enumerate(self._spans) if at not in self._constant]
        edges = [0, *chain.from_iterable(own), self._head_bytes, self._head_bytes + body_bytes]
        form = "".join([f"{stop - begin}s" for begin, stop in pairwise(edges)])
        split = self._split_alike[body_bytes] = Struct(form).iter_unpack
        return split

    def _checked(
        self, values: Columns, bodies: Sequence[bytes], ends: Sequence[int]
    ) -> SendFrameBatch | None:
        queues, born, opaques = [values[at] for at in self._numbers]
        texts = values[self._texts]
        digits = b"".join(opaques)
        if not digits.isdigit() or _ZERO in digits[:: len(opaques[0])]:
            return None
        if b"".join([b"".join(column) for column in texts]).translate(None, PLAIN):
            return None
        times = {text: int(text) for text in set(born) if text.isdigit()}
        try:
            queue_ids = [QUEUE_IDS[text] for text in queues]
            born_ms = [times[text] for text in born]
        except KeyError:
            return None
        return SendFrameBatch(queue_ids, born_ms, opaques, texts, bodies, ends)


def _is_one(column: tuple[bytes, ...]) -> bool:
    """Whether all are the same."""
    return column.count(column[0]) == len(column)
