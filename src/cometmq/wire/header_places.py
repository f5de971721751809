"""Hot. Where each value stands in a JSON header, and the cutting of others of the same form there.

For those who learn a header once to recognise its like (`send_template`, `pull_template`). Refuses
to know which values matter. Invariant: what is out of the ordinary has no places at all.
Java: none; every header is decoded there.
"""

from __future__ import annotations

import re
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Span = tuple[int, int]
"""First byte of a value and the byte behind its last."""

_entry = re.compile(
    rb'\s*"([^"\\]*)"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.0-9eE]+|true|false|null|\{)\s*', re.DOTALL
).match
_QUOTE = b'"'[0]


def places_in(header: bytes) -> dict[tuple[bool, bytes], Span] | None:
    """Return where each value stands: (in extFields?, name) to its bytes, quotes included.

    The header has passed a JSON decoder; None when it holds anything out of the ordinary.
    """
    places: dict[tuple[bool, bytes], Span] = {}
    at, is_inner = header.find(b"{") + 1, False
    while entry := _entry(header, at):
        name = (is_inner, entry[1])
        if name in places:
            return None
        places[name] = entry.span(2)
        at = entry.end()
        if entry[2] == b"{":
            if name != (False, b"extFields"):
                return None
            is_inner = True
            continue
        while is_inner and header[at : at + 1] == b"}":
            is_inner, at = False, _skip(header, at + 1)
        if header[at : at + 1] == b"}":
            return places if _skip(header, at + 1) == len(header) else None
        if header[at : at + 1] != b",":
            return None
        at += 1
    return None


def _skip(header: bytes, at: int) -> int:
    while header[at : at + 1].isspace():
        at += 1
    return at


def inside(header: bytes, span: Span | None) -> Span | None:
    """Return the span without its quotes; None when it is no text."""
    if span is None or header[span[0]] != _QUOTE:
        return None
    return span[0] + 1, span[1] - 1


def splitter(
    spans: Iterable[Span], start: int, end: int
) -> tuple[Callable[..., tuple[bytes, ...]], dict[Span, int]]:
    """Return what cuts start..end around the spans, and which piece each span becomes."""
    ordered = sorted(spans)
    edges = [start, *(edge for span in ordered for edge in span), end]
    pieces = Struct("".join(f"{stop - first}s" for first, stop in pairwise(edges)))
    return pieces.unpack_from, {span: 2 * rank + 1 for rank, span in enumerate(ordered)}
