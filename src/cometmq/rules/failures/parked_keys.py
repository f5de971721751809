"""Which keys are parked, and what follows: a fold over the records of one broker's parking queue.

Owns the meaning of each record and every decision about parked keys; knows nothing of who reads,
appends and handles. All readers that have read as far know the same. Invariants: a record of an
owner counts only while no later owner has opened the queue; parked messages of a key leave from the
head, in the order in which their queue first had them; no message of a parked key is to be handled
unless it is that head, or a copy of one that has left.
Time is an argument, epoch ms. docs/decisions/036. Java: none.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from cometmq.model.parking import ParkedMessage, ParkingStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.model.parking import ParkingRecord
    from cometmq.rules.failures.failure_policy import ParkBounds

Place = tuple[str, int]
"""Topic and id of a queue, at the broker whose parking queue is read."""

_DRAINS = (ParkingStep.RELEASE, ParkingStep.REDRIVE, ParkingStep.DEAD_LETTER)


class Verdict(Enum):
    """What is done with a message of a queue whose keys may be parked."""

    HANDLE = "its handler gets it"
    SKIP = "it is parked, or was done from there: it counts as done in its queue"
    PARK = "it follows its key to the parking topic"
    WAIT = "it waits: a bound is reached"
    DEAD_LETTER = "its key becomes dead letters, since a bound is reached"
    STOP = "the consumer stops, since a bound is reached"


@dataclass(frozen=True, slots=True)
class Drain:
    """A command that a key's parked messages follow, oldest first, until none is left."""

    step: ParkingStep
    position: int
    to: str
    rate: float


@dataclass(frozen=True, slots=True)
class LeftMessage:
    """That a parked message is done: where that is said, its copy's offset or -1, whose command."""

    position: int
    copy_offset: int
    command: int


@dataclass(slots=True)
class ParkedKey:
    """A key with parked messages, or with copies that its queue has not shown yet."""

    messages: dict[int, ParkedMessage] = field(default_factory=dict)
    """By their offsets."""
    order: list[tuple[int, int]] = field(default_factory=list)
    """Order and offset of each, sorted."""
    drain: Drain | None = None
    gate: int = -1
    """The highest offset of a copy in the queue itself: the key goes on behind it."""
    old_gate: int = -1
    """That of copies which an earlier command has sent: the running one waits for them."""
    failed_order: int = -1
    """The order of the message that failed last: all of the key below it are done."""
    parked_order: int = -1
    """The highest order of one that was parked: those up to it that are no longer here are done."""
    last_offset: int = -1
    """The highest offset that any of this is about."""
    positions: list[int] = field(default_factory=lambda: [-1, -1, -1])
    """Where gate, failed_order and parked_order are said."""
    takes_copies: bool = False
    """Whether copies may be handled: until one of the key fails again."""

    def head(self) -> ParkedMessage | None:
        """The message that leaves first."""
        return self.messages[self.order[0][1]] if self.order else None

    def add(self, message: ParkedMessage) -> None:
        """Put a message to its place in the order."""
        self.messages[message.offset] = message
        insort(self.order, (message.order, message.offset))

    def remove(self, offset: int) -> ParkedMessage | None:
        """Take a message out; None where it is not there."""
        message = self.messages.pop(offset, None)
        if message is not None:
            del self.order[bisect_left(self.order, (message.order, offset))]
        assert len(self.order) == len(self.messages), "each parked message has one place"
        return message


@dataclass(slots=True)
class ParkedQueue:
    """What is known of one origin queue."""

    epoch: int = 0
    owner: str = ""
    opened_at: int = -1
    from_offset: int = 0
    """Below it nothing is known any more of messages that are done: the queue has passed them."""
    refused: list[tuple[int, int]] = field(default_factory=list)
    """Where records of earlier owners lie that do not count: after an OPEN, up to the last one."""
    keys: dict[str, ParkedKey] = field(default_factory=dict)
    left: dict[int, LeftMessage] = field(default_factory=dict)
    """By their offsets: messages that were parked and are done."""
    count: int = 0
    """Parked messages of all keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """What a record's message says beside the record."""

    stored_ms: int = 0
    msg_id: str = ""
    reason: str = ""
    attempts: int = 0


NO_FACTS = StoredFacts()


_NOTHING = ParkedQueue()


class ParkedKeys:
    """All parked keys of a group at one broker. One owner: the loop that reads the records."""

    def __init__(self) -> None:
        self.queues: dict[Place, ParkedQueue] = {}

    def apply(self, position: int, record: ParkingRecord, facts: StoredFacts = NO_FACTS) -> bool:
        """Take the next record; whether it counts. Records come in the order of their positions."""
        queue = self.queues.setdefault((record.topic, record.queue_id), ParkedQueue())
        step = record.step
        if step is ParkingStep.OPEN:
            return self._open(queue, position, record)
        if step in (ParkingStep.PARK, ParkingStep.DONE, ParkingStep.STAY):
            if not _is_owners(queue, position, record):
                return False
            if step is ParkingStep.PARK:
                return self._park(queue, position, record, facts)
            if step is ParkingStep.DONE:
                return self._leave(queue, position, record)
            return self._stay(queue, record, facts)
        if step is ParkingStep.DROP:
            # who drops a message has seen it parked, if only before the first record read here
            return self._leave(queue, position, record)
        key = queue.keys.get(record.key)
        if key is None:
            return False
        if step is ParkingStep.REPAIR:
            return _repair(key, position, record)
        return _command(key, position, record)

    def judge(
        self,
        place: Place,
        key: str,
        offset: int,
        bounds: ParkBounds,
        now_ms: int,
        copy: tuple[int, int] | None = None,
        *,
        is_being_sent: bool = False,
    ) -> Verdict:
        """What is done with the next message of a key, at an offset of its queue.

        `copy`: order and offset of the parked message that it was made of, if it was;
        `is_being_sent`: whether this owner sends copies of that one now.
        """
        queue = self.queues.get(place) or _NOTHING
        if offset in queue.left:
            return Verdict.SKIP
        parked = queue.keys.get(key)
        original = queue.left.get(copy[1]) if copy else None
        if copy and (original is None or original.copy_offset != offset):
            # its record is on its way; or another send of it counts, made or still to be made
            return Verdict.WAIT if original is None and is_being_sent else Verdict.SKIP
        if parked is None:
            return Verdict.HANDLE
        # an owner before us has handled those that were done when the key was parked
        is_done = copy[0] < parked.failed_order if copy else offset <= parked.parked_order
        if is_done or offset in parked.messages:
            return Verdict.SKIP
        drain = parked.drain
        is_running = drain is not None and parked.takes_copies
        # before a copy of an earlier command others of its key may be parked again
        if original and drain and is_running and original.command == drain.position:
            return Verdict.HANDLE
        if not parked.messages and offset > parked.gate:
            return Verdict.HANDLE
        if offset <= parked.gate and (drain is not None or not parked.messages):
            return Verdict.PARK  # whatever the bounds: what waits for the gate must not hold it up
        return self._within(queue, parked, bounds, now_ms)

    def room(self, place: Place, bounds: ParkBounds) -> int:
        """How many more messages of a queue may be parked."""
        queue = self.queues.get(place)
        return max(0, bounds.count - (queue.count if queue else 0))

    def is_parked(self, place: Place, offset: int) -> bool:
        """Whether a message of a queue is parked now, or was and is done."""
        queue = self.queues.get(place)
        return queue is not None and (
            offset in queue.left or any(offset in key.messages for key in queue.keys.values())
        )

    def too_old(self, place: Place, bounds: ParkBounds, now_ms: int) -> list[str]:
        """The keys of a queue that wait for no command and were parked too long ago."""
        queue = self.queues.get(place)
        if queue is None:
            return []
        return [
            name
            for name, key in queue.keys.items()
            if key.drain is None and _is_old(key, bounds, now_ms)
        ]

    def drains(self, place: Place) -> list[str]:
        """The keys of a queue whose parked messages shall leave now."""
        queue = self.queues.get(place)
        if queue is None:
            return []
        return [name for name, key in queue.keys.items() if key.drain and key.messages]

    def next_to_leave(
        self, place: Place, key: str, read_to: int
    ) -> tuple[ParkedMessage, Drain] | None:
        """The parked message of a key that leaves now, and by which command.

        None while copies of an earlier command may lie in the queue at `read_to` or above.
        """
        queue = self.queues.get(place)
        parked = queue.keys.get(key) if queue else None
        head = parked.head() if parked else None
        if parked is None or head is None or parked.drain is None:
            return None
        is_redrive = parked.drain.step is ParkingStep.REDRIVE
        if (parked.old_gate if is_redrive else parked.gate) >= read_to:
            return None
        return head, parked.drain

    @property
    def size(self) -> int:
        """How many messages and keys are known: what `needed_from` looks through."""
        return sum(one.count + len(one.left) + len(one.keys) for one in self.queues.values())

    def needed_from(self, end: int) -> int:
        """The position below which no record says anything that still counts; at most `end`.

        Who begins there must know that a record of an earlier owner does not count. It would, if
        the OPEN before it lay below: then that is needed as well.
        """
        least = self._oldest_said(end)
        refused = [one for queue in self.queues.values() for one in queue.refused]
        for opened_at, last in sorted(refused, reverse=True):
            if opened_at < least <= last:
                least = opened_at
        return least

    def forget_below(self, position: int) -> None:
        """Forget where records lie that did not count; nobody begins below this position now."""
        for queue in self.queues.values():
            queue.refused = [one for one in queue.refused if one[1] >= position]

    def records_in_force(self, place: Place, end: int) -> int:
        """How far back the records of a queue begin that another OPEN may put out of force."""
        queue = self.queues.get(place)
        if queue is None:
            return 0
        oldest = min(
            queue.opened_at, *(one.position for one in islice(queue.left.values(), 1)), end
        )
        return end - oldest

    def _oldest_said(self, end: int) -> int:
        least = end
        for queue in self.queues.values():
            if queue.opened_at >= 0:
                least = min(least, queue.opened_at)
            least = min(least, *(one.position for one in queue.left.values()), least)
            for key in queue.keys.values():
                least = min(least, *(said for said in key.positions if said >= 0), least)
                least = min(least, *(one.position for one in key.messages.values()), least)
        return least

    def messages(self) -> Iterator[ParkedMessage]:
        """All parked messages, those of a key in their order."""
        for queue in self.queues.values():
            for key in queue.keys.values():
                for _, offset in key.order:
                    message = key.messages[offset]
                    message.command = key.drain.step.value if key.drain else ""
                    yield message

    def _open(self, queue: ParkedQueue, position: int, record: ParkingRecord) -> bool:
        if record.epoch <= queue.epoch:
            return False
        queue.epoch, queue.owner, queue.opened_at = record.epoch, record.owner, position
        # what lies below that offset is never read again
        start = queue.from_offset = record.from_offset
        for at, said in list(queue.left.items()):
            if max(at, said.copy_offset) < start:
                del queue.left[at]
        for name, key in list(queue.keys.items()):
            if not key.messages and key.last_offset < start:
                del queue.keys[name]
        return True

    def _park(
        self, queue: ParkedQueue, position: int, record: ParkingRecord, facts: StoredFacts
    ) -> bool:
        if record.offset in queue.left:
            return False  # a send that was repeated, and came late
        key = queue.keys.setdefault(record.key, ParkedKey())
        if record.offset in key.messages:
            return False
        key.add(
            ParkedMessage(
                topic=record.topic,
                queue_id=record.queue_id,
                offset=record.offset,
                order=record.order,
                key=record.key,
                position=position,
                msg_id=facts.msg_id,
                reason=facts.reason,
                attempts=facts.attempts,
                parked_ms=facts.stored_ms,
                has_failed=record.has_failed,
            )
        )
        queue.count += 1
        key.last_offset = max(key.last_offset, record.offset)
        if record.order > key.parked_order:
            key.parked_order, key.positions[2] = record.order, position
        if record.has_failed:
            key.drain, key.takes_copies = None, False
            key.failed_order, key.positions[1] = record.order, position
        return True

    def _leave(self, queue: ParkedQueue, position: int, record: ParkingRecord) -> bool:
        if record.offset in queue.left:
            return False  # a send that was repeated, and came late
        key = queue.keys.get(record.key)
        known = key is not None and key.remove(record.offset) is not None
        queue.count -= known
        queue.left[record.offset] = LeftMessage(position, record.gate, record.command)
        if record.gate >= 0:
            key = queue.keys.setdefault(record.key, ParkedKey())
            key.gate, key.positions[0] = max(key.gate, record.gate), position
            key.last_offset = max(key.last_offset, record.gate)
            if key.drain is None or key.drain.position != record.command:
                key.old_gate = max(key.old_gate, record.gate)
        if key is not None and not key.messages and key.gate < 0:
            key.drain = None
        return True

    def _stay(self, queue: ParkedQueue, record: ParkingRecord, facts: StoredFacts) -> bool:
        key = queue.keys.get(record.key)
        if key is None or key.drain is None or key.drain.position != record.command:
            return False
        key.drain, key.takes_copies = None, False
        if message := key.messages.get(record.offset):
            message.has_failed, message.reason = True, record.reason
            message.attempts = max(message.attempts + 1, facts.attempts)
        return True

    def _within(
        self, queue: ParkedQueue, key: ParkedKey, bounds: ParkBounds, now_ms: int
    ) -> Verdict:
        if queue.count < bounds.count and not _is_old(key, bounds, now_ms):
            return Verdict.PARK
        if key.drain is not None:
            # it gets younger and shorter; what comes now goes behind what is left
            return Verdict.PARK if queue.count < bounds.count else Verdict.WAIT
        return _AT_BOUND[bounds.at_bound]


_AT_BOUND = {
    "block": Verdict.WAIT,
    "dead_letter": Verdict.DEAD_LETTER,
    "stop": Verdict.STOP,
}


def _is_owners(queue: ParkedQueue, position: int, record: ParkingRecord) -> bool:
    """Whether the owner of the queue wrote a record."""
    if not queue.epoch:  # its OPEN lies before the first record that is read
        queue.epoch, queue.owner, queue.opened_at = record.epoch, record.owner, position
    if (record.epoch, record.owner) == (queue.epoch, queue.owner):
        return True
    if queue.refused and queue.refused[-1][0] == queue.opened_at:
        queue.refused.pop()
    queue.refused.append((queue.opened_at, position))
    return False


def _repair(key: ParkedKey, position: int, record: ParkingRecord) -> bool:
    message = key.messages.get(record.offset)
    if message is None or key.drain is not None:
        return False  # it is gone, or may be on its way
    message.repaired_at = position
    return True


def _command(key: ParkedKey, position: int, record: ParkingRecord) -> bool:
    assert record.step in _DRAINS, "each other step has its own branch"
    head = key.head()
    if key.drain is not None or head is None or head.offset != record.offset:
        return False  # it obeys already, or is not as it was when the command was given
    key.drain = Drain(record.step, position, record.to, record.rate)
    key.takes_copies = record.step is ParkingStep.REDRIVE
    key.old_gate = key.gate
    return True


def _is_old(key: ParkedKey, bounds: ParkBounds, now_ms: int) -> bool:
    head = key.head()
    return head is not None and now_ms - head.parked_ms > bounds.age_s * 1000
