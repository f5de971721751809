"""What became of every message that was parked: the fold over a parking queue, kept as a history.

Owns what each record means for a message that has left: who sent it where, by which command.
Which records count is decided by `parked_keys` alone. Pure; time is in the records.
Java: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cometmq.model.parking import ParkingStep
from cometmq.rules.failures.parked_keys import NO_FACTS, ParkedKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.model.parking import ParkedMessage, ParkingRecord
    from cometmq.rules.failures.parked_keys import StoredFacts


class ParkedState(Enum):
    """What a parked message has become, as far as the records say."""

    PARKED = "parked"
    """It waits, or follows the command of its key that is in `command`."""
    RELEASED = "released"
    """The group's handler had it, and was content."""
    REDRIVEN = "redriven"
    """It was sent to a topic again."""
    DEAD_LETTER = "dead_letter"
    """It became a dead letter."""
    DROPPED = "dropped"
    """An operator let it count as done."""
    DONE = "done"
    """It left by a command whose record is no longer there."""


@dataclass(slots=True)
class ParkedEntry:
    """One message that was parked. `left_ms`: when it left (epoch ms), 0 while it is parked.

    `to`: the topic it was sent to, empty for its own or where it was not sent.
    """

    message: ParkedMessage
    state: ParkedState = ParkedState.PARKED
    left_ms: int = 0
    to: str = ""


_BY_COMMAND = {
    ParkingStep.RELEASE: ParkedState.RELEASED,
    ParkingStep.REDRIVE: ParkedState.REDRIVEN,
    ParkingStep.DEAD_LETTER: ParkedState.DEAD_LETTER,
}


class ParkedHistory:
    """The history of one parking queue. Records come in the order of their positions."""

    def __init__(self) -> None:
        self._keys = ParkedKeys()
        self._commands: dict[int, ParkingRecord] = {}
        self._entries: dict[int, ParkedEntry] = {}
        """By the positions of their records."""

    def apply(self, position: int, record: ParkingRecord, facts: StoredFacts = NO_FACTS) -> None:
        """Take the next record."""
        step = record.step
        leaves = step in (ParkingStep.DONE, ParkingStep.DROP)
        left = self._parked(record) if leaves else None
        if not self._keys.apply(position, record, facts):
            return
        if step in _BY_COMMAND:
            self._commands[position] = record
        elif step is ParkingStep.PARK:
            message = self._parked(record)
            assert message is not None, "a record that counts has parked its message"
            self._entries[position] = ParkedEntry(message)
        elif left is not None:
            self._leave(self._entries[left.position], record, facts.stored_ms)

    def entries(self) -> Iterator[ParkedEntry]:
        """All messages that were parked, in the order in which they were."""
        for message in self._keys.messages():
            assert message.position in self._entries, "each parked message has its entry"
        yield from self._entries.values()

    def _parked(self, record: ParkingRecord) -> ParkedMessage | None:
        queue = self._keys.queues.get((record.topic, record.queue_id))
        key = queue.keys.get(record.key) if queue else None
        return key.messages.get(record.offset) if key else None

    def _leave(self, entry: ParkedEntry, record: ParkingRecord, left_ms: int) -> None:
        entry.left_ms, entry.message.command = left_ms, ""
        if record.step is ParkingStep.DROP:
            entry.state = ParkedState.DROPPED
            return
        command = self._commands.get(record.command)
        if command is not None:
            entry.state, entry.to = _BY_COMMAND[command.step], command.to
        else:
            entry.state = ParkedState.REDRIVEN if record.gate >= 0 else ParkedState.DONE
