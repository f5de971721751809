"""What a group did between two moments: rates, handlers at work, what waits where. Pure."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from cometmq.model.topic import is_retry_topic

if TYPE_CHECKING:
    from cometmq.model.group_work import GroupMoment, MemberMoment, QueueWork
    from cometmq.model.queue import MessageQueue

FULL = 0.85
"""Share of the handlers that can run at once from which on they count as all at work."""

SHORT_CALL = 0.05
"""Share of the time of a look up to which the call of a handler counts as short."""


class MemberActivity:
    """One member between two moments, both of which it has answered."""

    def __init__(self, before: MemberMoment, now: MemberMoment, seconds: float) -> None:
        self.client_id = now.client_id
        self.before, self.now = before.work, now.work
        self._seconds = seconds
        self.queues: dict[MessageQueue, QueueWork] = {
            queue: one for queue, one in now.work.queues.items() if not is_retry_topic(queue.topic)
        }

    def grown(self, name: str) -> float:
        """By how much a count has grown; a member that began anew counts from 0."""
        before, now = getattr(self.before, name) or 0.0, getattr(self.now, name) or 0.0
        return float(now - before if now >= before else now)

    @property
    def busy(self) -> float:
        """Handlers at work on average: by their time, and where calls are long by both looks.

        The time of a call counts once it has ended, so long ones may not show there; short ones
        come with each pull, and a look may meet such a moment by chance.
        """
        spent_s, calls = self.grown("busy_s"), self.grown("calls")
        mean = spent_s / self._seconds
        if not calls or spent_s / calls > SHORT_CALL * self._seconds:
            seen = [one.busy for one in (self.before, self.now) if one.busy is not None]
            mean = max(mean, sum(seen) / len(seen) if seen else 0.0)
        return min(mean, float(self.now.threads))

    def slots(self, loaded: set[MessageQueue], threads: int | None = None) -> float:
        """How many handlers can be at work at once on the queues in which messages wait."""
        if self.now.is_paused:
            return 0
        own = [one for queue, one in self.now.queues.items() if queue in loaded]
        most = self.now.threads if threads is None else threads
        if self.now.order == "queue":
            return min(most, len(own))
        if self.now.order == "key":
            return min(most, sum(max(1, one.lanes) for one in own))
        return most if own else 0

    def lanes_by_key(self, loaded: set[MessageQueue]) -> float | None:
        """How many lanes would be at work by key: the most frequent key bounds its queue's.

        None where no key is known.
        """
        own = [one for queue, one in self.now.queues.items() if queue in loaded and one.keys]
        if not own:
            return None
        lanes = sum(1 / max(0.001, *one.keys.values()) for one in own)
        return min(self.now.threads, lanes)


class GroupActivity:
    """A group between two moments. Rates are messages a second."""

    def __init__(self, before: GroupMoment, now: GroupMoment) -> None:
        self.before, self.now = before, now
        self.seconds = max(0.001, now.at_s - before.at_s)
        known = {one.client_id: one for one in before.members if one.info is not None}
        self.members = [
            MemberActivity(known[one.client_id], one, self.seconds)
            for one in now.members
            if one.info is not None and one.client_id in known
        ]

    def total(self, name: str) -> float:
        """By how much a count of all members has grown."""
        return sum(one.grown(name) for one in self.members)

    @cached_property
    def rate(self) -> float:
        """Messages handled well."""
        return self.total("done") / self.seconds

    @cached_property
    def arriving(self) -> float:
        """Messages that came in."""
        ends = self.before.ends
        return sum(max(0, end - ends.get(q, end)) for q, end in self.now.ends.items()) / (
            self.seconds
        )

    @cached_property
    def passed(self) -> float:
        """Offsets that were passed, with messages that a filter dropped."""
        after = _positions(self.now)
        return sum(max(0, after.get(q, at) - at) for q, at in _positions(self.before).items()) / (
            self.seconds
        )

    @cached_property
    def lags(self) -> dict[MessageQueue, int]:
        """What waits or is being handled, by queue."""
        positions = _positions(self.now)
        return {q: max(0, end - positions.get(q, 0)) for q, end in self.now.ends.items()}

    @cached_property
    def lag(self) -> int:
        """The same of all queues."""
        return sum(self.lags.values())

    @property
    def is_behind(self) -> bool:
        """Whether more waits than a second's work."""
        return self.lag > max(self.rate, 5.0)

    @cached_property
    def loaded(self) -> set[MessageQueue]:
        """Queues in which messages wait: those with a tenth of an even share at least."""
        least = self.lag / max(1, len(self.lags)) / 10
        return {queue for queue, lag in self.lags.items() if lag > least}

    @cached_property
    def unowned(self) -> set[MessageQueue]:
        """Queues that no member has, where all have answered, at either moment."""
        works = [one.work for moment in (self.before, self.now) for one in moment.members]
        if not self.members or any(one.info is None for one in self.now.members):
            return set()
        return self.now.ends.keys() - {queue for work in works for queue in work.queues}

    @cached_property
    def slots(self) -> float:
        """Handlers that can be at work at once as things are."""
        return sum(one.slots(self.loaded) for one in self.members)

    @cached_property
    def threads(self) -> int:
        """Threads of all members."""
        return sum(one.now.threads for one in self.members)

    @cached_property
    def busy(self) -> float:
        """Handlers at work on average."""
        return sum(one.busy for one in self.members)

    @property
    def is_full(self) -> bool:
        """Whether all handlers that can be at work are."""
        return self.slots > 0 and self.busy >= FULL * self.slots

    @cached_property
    def call_s(self) -> float:
        """What a call of a handler takes; when none has ended, at least so long."""
        calls = self.total("calls")
        return self.total("busy_s") / calls if calls else self.seconds * (self.busy > 0)

    @property
    def order(self) -> str:
        """How messages are handled: by most members."""
        orders = [one.now.order for one in self.members]
        return max(set(orders), key=orders.count) if orders else "none"

    @property
    def rate_of_top_key(self) -> float:
        """The rate at which the messages of the most frequent key alone allow all others to go.

        They are handled one at a time; infinite where no key is known, or without an order.
        """
        queue_lag = max(self.lags.values(), default=0)
        share = self.top_key[1] * queue_lag / max(1, self.lag)
        calls = self.total("calls")
        if self.order == "none" or not share or not calls or not self.call_s:
            return inf
        return self.total("done") / calls / self.call_s / share

    @cached_property
    def top_key(self) -> tuple[str, float]:
        """The most frequent key where most waits, and its share there; 0: none is known."""
        found = [
            (self.lags.get(queue, 0), key, share)
            for member in self.members
            for queue, one in member.queues.items()
            for key, share in list(one.keys.items())[:1]
        ]
        _, key, share = max(found, default=(0, "", 0.0))
        return key, share


def _positions(moment: GroupMoment) -> dict[MessageQueue, int]:
    """Where the group is: what members say, else what was committed."""
    found = dict(moment.committed)
    for member in moment.members:
        found |= {q: one.position for q, one in member.work.queues.items() if q in moment.ends}
    return found
