"""All exchanges of two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.beside import lay
from interop.beside.reasons import Difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.beside.talk import Exchange


def differences(
    theirs: Mapping[str, Exchange], ours: Mapping[str, Exchange]
) -> dict[str, list[Difference]]:
    """Per exchange that both had, what differs; the empty list for what is alike."""
    assert theirs.keys() == ours.keys(), set(theirs) ^ set(ours)
    found: dict[str, list[Difference]] = {}
    for name, exchange in theirs.items():
        code = exchange.request.code
        one, two = (lay.facts(code, each.answer) for each in (exchange, ours[name]))
        found[name] = [Difference(name, *each) for each in lay.differences(one, two)]
    return found
