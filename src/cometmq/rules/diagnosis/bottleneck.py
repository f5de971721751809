"""Why a consumer group is not faster, and what would help: from two moments to an answer. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.rules.diagnosis.bottleneck_causes import Cause, causes
from cometmq.rules.diagnosis.bottleneck_changes import Change, changes
from cometmq.rules.diagnosis.group_activity import GroupActivity

if TYPE_CHECKING:
    from cometmq.model.group_work import GroupMoment

_NOTHING = Cause("nothing", 0.9, "the group keeps up with what comes in", "")
_UNKNOWN = Cause(
    "unknown", 0.3, "messages wait, and nothing that is known of the group explains it",
    "see cometmq doctor, and the members' logs",
)  # fmt: skip
_CHANGES_SHOWN = 3


class Bottleneck(NamedTuple):
    """What bounds a group: the first cause; what each change would bring."""

    group: str
    rate: float
    """Messages handled a second."""
    arriving: float
    """Messages that came in a second."""
    lag: int
    causes: tuple[Cause, ...]
    """The surest first; one at least."""
    changes: tuple[Change, ...]
    """The largest gain first; none where nothing was handled."""

    @property
    def cause(self) -> Cause:
        """What bounds the group first of all."""
        return self.causes[0]

    def lines(self) -> list[str]:
        """The answer in about five lines."""
        first = self.cause
        said = [
            f"{self.group}: {self.rate:,.0f} messages/s handled, {self.arriving:,.0f} come in, "
            f"{self.lag:,} wait",
            f"bound by: {first.name} ({first.certainty:.0%} sure): {first.what}",
        ]
        if first.advice:
            said.append(f"do: {first.advice}")
        said += [f"also: {one.name} ({one.certainty:.0%}): {one.what}" for one in self.causes[1:3]]
        gains = [one for one in self.changes if one.is_gain][:_CHANGES_SHOWN]
        if gains:
            listed = "; ".join(f"{one.what}: {_range(one)}" for one in gains)
            said.append(f"would bring: {listed}")
        if idle := [one.name for one in self.changes if not one.is_gain]:
            said.append(f"would bring nothing: {', '.join(idle)}")
        return said

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "group": self.group,
            "rate": round(self.rate, 3),
            "arriving": round(self.arriving, 3),
            "lag": self.lag,
            "causes": [one._asdict() for one in self.causes],
            "changes": [one._asdict() for one in self.changes],
        }


def find_bottleneck(before: GroupMoment, now: GroupMoment) -> Bottleneck:
    """Judge what a group did between two moments, best some seconds apart."""
    seen = GroupActivity(before, now)
    found = causes(seen) or [_UNKNOWN if seen.is_behind else _NOTHING]
    possible = changes(seen)
    return Bottleneck(now.group, seen.rate, seen.arriving, seen.lag, tuple(found), tuple(possible))


def _range(one: Change) -> str:
    digits = 0 if one.high >= 10 else 1
    return f"{one.low:,.{digits}f} to {one.high:,.{digits}f} messages/s"
