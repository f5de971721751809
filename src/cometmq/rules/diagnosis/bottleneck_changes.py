"""What each change of a group would bring: its rate after it, as a range. Pure.

Handlers that wait are assumed: so many at work at once give so many messages, as long as they are
what bounds the group. A range reaches over less than a factor of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.rules.diagnosis.group_activity import GroupActivity

_LOW, _HIGH = 0.72, 1.38


class Change(NamedTuple):
    """A change and the rate after it, messages a second from `low` to `high`."""

    name: str
    what: str
    low: float
    high: float
    is_gain: bool


def changes(seen: GroupActivity) -> list[Change]:
    """What each possible change would bring, the largest gain first.

    Empty where nothing waits or nothing was handled: then there is nothing to go by.
    """
    if not seen.is_behind or not seen.rate or not seen.slots:
        return []
    found = [
        Change(name, what, rate * _LOW, rate * _HIGH, rate > 1.2 * seen.rate)
        for name, what, rate in _rates(seen)
    ]
    return sorted(found, key=lambda change: -change.high)


def _rates(seen: GroupActivity) -> Iterator[tuple[str, str, float]]:
    def rate(slots: float) -> float:
        """The rate with so many handlers at once; those that idle now would idle then, too."""
        if not seen.is_full:
            return seen.rate
        more = seen.rate * max(1.0, slots / seen.slots)
        is_by_key = seen.order == "key"
        return min(more, max(seen.rate, seen.rate_of_top_key)) if is_by_key else more

    loaded, members = seen.loaded, seen.members
    active = [one for one in members if one.slots(loaded)]
    threads = active[0].now.threads
    twice = sum(one.slots(loaded, one.now.threads * 2) for one in members)
    yield "threads", f"{threads * 2} threads instead of {threads} in each member", rate(twice)
    yield _more_members(seen, len(active), rate(_slots_of_members(seen, 2 * len(members))))
    queues = len(seen.lags)
    wide = _slots_of_queues(seen, 2 * len(loaded))
    yield "queues", f"{queues * 2} queues instead of {queues}", rate(wide)
    if seen.order == "queue":
        lanes = [one.lanes_by_key(loaded) for one in active]
        if known := [one for one in lanes if one is not None]:
            at_once = sum(known) / len(known) * len(active)
            yield "key lanes", "key lanes (order='key')", rate(max(at_once, seen.slots))
    blocked = sum(bool(one.blocked) for member in members for one in member.queues.values())
    if blocked and len(loaded) > blocked:
        share = len(loaded) / (len(loaded) - blocked)
        yield "policy", "a failure policy that gives the failing message up", seen.rate * share
    yield from _batches_and_processes(seen)


def _batches_and_processes(seen: GroupActivity) -> Iterator[tuple[str, str, float]]:
    calls, members = seen.total("calls"), seen.members
    size = members[0].now.batch_size
    if calls and seen.total("done") / calls >= 0.9 * size:
        # from no gain, where the time goes with the messages, to twice as much, where with calls
        middle = seen.rate / _LOW if seen.is_full else seen.rate
        yield "batch size", f"batch_size={size * 2}, if a call then takes no longer", middle
    cores = seen.total("cpu_s") / seen.seconds
    is_computing = seen.is_full and cores >= 0.85 * len(members)
    factor = min(4.0, seen.slots / max(1.0, cores)) if is_computing else 1.0
    yield "processes", 'handlers in processes (workers="process")', seen.rate * factor


def _more_members(seen: GroupActivity, active: int, rate: float) -> tuple[str, str, float]:
    count = len(seen.members)
    return "members", f"{2 * count} members instead of {count}, {active} of which are at work", rate


def _slots_of_members(seen: GroupActivity, count: int) -> float:
    """Handlers at work at once, were there so many members with the queues shared out evenly."""
    threads = seen.members[0].now.threads
    loaded = len(seen.loaded)
    if seen.order == "queue":
        return min(count * threads, loaded)
    if seen.order == "key":
        return max(seen.slots, min(count * threads, _lanes(seen)))
    return min(count, loaded) * threads


def _slots_of_queues(seen: GroupActivity, loaded: int) -> float:
    if seen.order == "queue":
        return min(seen.threads, loaded)
    if seen.order == "key":
        return seen.slots
    threads = seen.members[0].now.threads
    return min(len(seen.members), loaded) * threads


def _lanes(seen: GroupActivity) -> float:
    return sum(max(1, one.lanes) for member in seen.members for one in member.queues.values())
