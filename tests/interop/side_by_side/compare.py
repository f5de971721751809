"""All exchanges of two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.side_by_side import answer_differences
from interop.side_by_side.reasons import Difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.side_by_side.exchanges import Exchange


def differences(
    theirs: Mapping[str, Exchange], ours: Mapping[str, Exchange]
) -> dict[str, list[Difference]]:
    """Per exchange that both had, what differs; the empty list for what is alike."""
    assert theirs.keys() == ours.keys(), set(theirs) ^ set(ours)
    found: dict[str, list[Difference]] = {}
    for name, exchange in theirs.items():
        code = exchange.request.code
        one, two = (answer_differences.facts(code, each.answer) for each in (exchange, ours[name]))
        found[name] = [Difference(name, *each) for each in answer_differences.differences(one, two)]
    return found
