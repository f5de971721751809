"""What went by at the proxy, as one shape per request code: fields asked, codes, fields, bodies.

Counts and order do not matter here, only what kinds of answers there were and what they held.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from cometmq.wire.codes import ResponseCode
from interop.side_by_side import answer_differences
from interop.side_by_side.reasons import Difference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from interop.side_by_side.recording_proxy import Heard

_KEYS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|(?<=\.)\d+|(?<=Table\.)[^.]+|(?<=Map\.)[^.]+")
Shapes = dict[str, set[str]]


def shapes(heard: Iterable[Heard]) -> Shapes:
    """Per code and way, everything that was there: "answered 0", "0 ext.queueId", "0 body.x"."""
    found: Shapes = defaultdict(set)
    for each in heard:
        request, answer = each.request, each.answer
        name = f"{request.code} {each.way}"
        held = found[name]
        held.add("one-way" if request.is_oneway else "asked")
        if each.way.startswith("broker"):
            held |= {f"request ext.{key}" for key in request.ext}
        if answer is None or answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
            continue  # the Java client pulls before the beat that tells brokers of it, now and then
        held.add(f"answered {answer.code}")
        for path in answer_differences.facts(request.code, answer):
            if path not in ("code", "remark", "body"):
                held.add(f"{answer.code} {_KEYS.sub('*', path)}")
    return dict(found)


def differences(theirs: Shapes, ours: Shapes) -> dict[str, list[Difference]]:
    """Per code, what only one of the two brokers was asked or answered."""
    found: dict[str, list[Difference]] = {}
    for name in sorted({*theirs, *ours}, key=lambda each: int(each.split()[0])):
        one, two = theirs.get(name, set()), ours.get(name, set())
        found[name] = [
            *(Difference(name, what, "there", "-") for what in sorted(one - two)),
            *(Difference(name, what, "-", "there") for what in sorted(two - one)),
        ]
    return found
