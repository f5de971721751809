"""Parking: what a record of a group's parking topic says, and what is known of a parked message.

The parking topic `%PARK%<group>` has two queues on each broker. The first is a log: messages set
apart, what became of them, which member owns a queue, and the commands of operators, in one order.
Java: none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypedDict

Progress = Callable[[int, int], object]
"""Called with how many are done, and of how many."""
PARK_PREFIX = "%PARK%"
RECORD_PROPERTY = "PARK_RECORD"
"""The property of a message of the parking topic that says what it is."""
COPY_PROPERTY = "PARK_COPY"
"""The property of a message that was sent to its topic again: group, queue and order."""


def parking_topic_of(group: str) -> str:
    """Return the topic with a group's parked messages."""
    return PARK_PREFIX + group


def is_parking_topic(topic: str) -> bool:
    """Whether the topic holds some group's parked messages."""
    return topic.startswith(PARK_PREFIX)


class ParkingStep(Enum):
    """What a record of the parking topic says."""

    OPEN = "open"
    """A member owns a queue from here on; records of earlier owners behind this one count not."""
    PARK = "park"
    """The message itself: its key is parked, and it is the next one of it."""
    DONE = "done"
    """A parked message was handled, sent elsewhere, or made a dead letter."""
    STAY = "stay"
    """A released message failed again: its key stays parked."""
    RELEASE = "release"
    """A command: the group's handler shall have the parked messages of a key, in order."""
    REDRIVE = "redrive"
    """A command: they shall be sent to a topic, in order."""
    DEAD_LETTER = "dead_letter"
    """A command: they shall become dead letters, in order."""
    DROP = "drop"
    """A command: one parked message counts as done."""
    REPAIR = "repair"
    """A command: the body of a parked message is this record's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingRecord:
    """One record. `topic` and `queue_id` name the queue, at the broker of the record, it is about.

    `offset` is that of the message in this queue; `order` its place among those of its key, which a
    message that was sent again keeps. `epoch` and `owner` say which member wrote it; commands have
    none. `from_offset` (OPEN): the queue is never read again below it. `gate` (DONE): the offset at
    which a copy lies in the same queue. `command` (STAY): the position of the command it answers.
    `rate`: messages a second, 0 without limit. `to`: the topic of a REDRIVE.
    """

    step: ParkingStep
    topic: str
    queue_id: int
    key: str = ""
    offset: int = -1
    order: int = -1
    epoch: int = 0
    owner: str = ""
    from_offset: int = 0
    has_failed: bool = False
    gate: int = -1
    command: int = -1
    to: str = ""
    rate: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse a queue or an order that cannot be."""
        assert self.queue_id >= 0, "a queue has a number"
        assert self.rate >= 0, "a rate is not negative"


@dataclass(slots=True, kw_only=True)
class ParkedMessage:
    """A parked message without its body: where it lies, where it came from, and why.

    `position` is its offset in the parking topic, `repaired_at` that of its newest repair or -1;
    `parked_ms` is when it was parked (epoch ms). `has_failed` is False for one that only follows.
    """

    topic: str
    queue_id: int
    offset: int
    order: int
    key: str
    position: int
    msg_id: str = ""
    reason: str = ""
    attempts: int = 0
    parked_ms: int = 0
    has_failed: bool = False
    repaired_at: int = -1
    broker_name: str = ""
    command: str = ""
    """The command that its key's messages follow now: "release", "redrive"; empty: it waits."""


class SelectionArguments(TypedDict, total=False):
    """The fields of a `Selection` as arguments of a call."""

    key: str | None
    msg_id: str | None
    reason: str | None
    since_ms: int
    until_ms: int
    places: Collection[tuple[str, int]] | None


class Selection(NamedTuple):
    """Which parked messages or dead letters are meant: all that match what is given."""

    key: str | None = None
    msg_id: str | None = None
    reason: str | None = None
    """A part of the reason, in any case."""
    since_ms: int = 0
    until_ms: int = (1 << 63) - 1
    places: Collection[tuple[str, int]] | None = None
    """Broker and offset in the parking topic, or in the dead-letter topic."""

    def takes(self, one: ParkedMessage) -> bool:
        """Whether a message is meant."""
        return (
            self.key in (None, one.key)
            and self.msg_id in (None, one.msg_id)
            and (self.reason or "").lower() in one.reason.lower()
            and self.since_ms <= one.parked_ms <= self.until_ms
            and (self.places is None or (one.broker_name, one.position) in self.places)
        )


class Refusal(NamedTuple):
    """A message that was not sent, handled or dropped, and why."""

    message: ParkedMessage
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveReport:
    """What became of a command: how many messages were asked for, how many left, what did not."""

    asked: int
    done: int = 0
    refused: tuple[Refusal, ...] = ()
    is_dry_run: bool = False
