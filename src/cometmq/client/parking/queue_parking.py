"""What the owner of a queue does for its parked keys: open, park, and let them leave again.

Owns the order of its own records; leaves every decision to `rules.failures.parked_keys` and the
handlers' slots to its caller. Invariants: nothing of the queue is handled before its OPEN was read
back; a message counts as parked only when its record was read back and counts; a parked message
leaves only from the head of its key. docs/decisions/036. Java: none.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.client.parking.parking_messages import FOLLOWS, control_form, parked_form
from cometmq.errors import CometError
from cometmq.model.parking import COPY_PROPERTY, ParkingRecord, ParkingStep
from cometmq.rules.failures.parked_keys import Verdict
from cometmq.rules.failures.retry_policy import backoff_s
from cometmq.wire.bodies.parking import decode_copy_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.client.consumer.assigned_queue import AssignedQueue
    from cometmq.client.parking.parking_log import ParkingLog
    from cometmq.client.producer.prepared_message import PreparedMessage
    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.model.message import MessageExt
    from cometmq.model.parking import ParkedMessage
    from cometmq.rules.failures.failure_policy import ParkBounds
    from cometmq.wire.bodies.parking import CopyMark

log = logging.getLogger(__name__)

_COPY_NAME = COPY_PROPERTY.encode()
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.1, 5.0
SAVED_S = 60.0
"""Seconds after which a broker has saved a committed offset, and its slaves have it: both do so
every 5 to 10 seconds by default. A broker that is killed goes on with those that it has saved."""
_REOPEN_RECORDS = 2_000
"""Records behind the first one in force after which OPEN is written again."""
_REOPEN_S = 600.0
"""Seconds after an OPEN until it is written again where messages that are done may be forgotten."""


class _Committed(NamedTuple):
    """An offset that the broker had: when (loop time), and how often it had been away before."""

    at_s: float
    interruptions: int
    offset: int


class QueueParking:
    """The parked keys of one queue that this member owns. One loop owns it."""

    def __init__(
        self,
        assigned: AssignedQueue,
        owner: str,
        log_of_broker: ParkingLog,
        bounds: ParkBounds,
        options: ProducerOptions,
        key_of: Callable[[MessageExt], str],
        restart_queue: Callable[[AssignedQueue], None],
        stop_consumer: Callable[[str], None],
    ) -> None:
        """`owner` is a name of its own, `key_of` names the key of a message.

        `restart_queue` drops the queue to start it anew.
        """
        queue = assigned.queue
        self.place = (queue.topic, queue.queue_id)
        self.is_open = False
        """Whether everything is known, so that messages may be handled."""
        self.log = log_of_broker
        self._assigned = assigned
        self._bounds = bounds
        self._options = options
        self._key_of = key_of
        self._restart_queue = restart_queue
        self._stop_consumer = stop_consumer
        self.being_sent: set[int] = set()
        """Offsets of parked messages of which copies are sent now, until that was read back."""
        self.maintained_at = 0.0
        """When (loop time) ages were looked at last."""
        self._owner = owner
        self._epoch = 0
        self._opened_s = 0.0
        self._committed: _Committed | None = None
        """What the broker had when OPEN was to be written again, until it is certain."""
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Become the owner: from here on records of earlier owners count for nobody."""
        assigned = self._assigned
        while not (assigned.is_dropped or self.is_open):
            try:
                async with self._lock:
                    await self._open()
            except CometError:
                assert assigned.is_dropped, "only then a record is given up"
                return
            self.is_open = self.is_owner()

    def may_reopen(self) -> bool:
        """Whether records before the OPEN need not be read any more, or may soon be forgotten."""
        records = self.log.keys.records_in_force(self.place, self.log.next)
        is_old = asyncio.get_running_loop().time() > self._opened_s + _REOPEN_S
        return records > _REOPEN_RECORDS or (is_old and bool(self.log.keys.queues[self.place].left))

    async def reopen(self) -> None:
        """Write OPEN again with an offset that the broker has for certain, once one is known.

        To be called again and again: what the broker has now is certain after a minute in which it
        was always there.
        """
        start = await self._certain_offset()
        if start is None:
            return
        async with self._lock:
            await self._open(start)
            if not self.is_owner():
                self.lose()

    def is_owner(self) -> bool:
        """Whether no other member has opened the queue since, as far as was read."""
        queue = self.log.keys.queues.get(self.place)
        return queue is not None and (queue.epoch, queue.owner) == (self._epoch, self._owner)

    def leading_to_handle(self, messages: Sequence[MessageExt]) -> int:
        """How many of these messages of one key, from the first on, their handler shall get."""
        if not self._are_affected(messages):
            return len(messages)
        for number, message in enumerate(messages):
            if self._judge(message) is not Verdict.HANDLE:
                return number
        return len(messages)

    def _are_affected(self, messages: Sequence[MessageExt]) -> bool:
        """Whether anything may be known of these messages: seldom."""
        queue = self.log.keys.queues[self.place]
        if queue.left or (queue.keys and self._key_of(messages[0]) in queue.keys):
            return True
        return any(_COPY_NAME in one.raw_properties for one in messages)

    async def park_followers(self, messages: Sequence[MessageExt]) -> int:
        """Park the first messages of a parked key; how many, the parked ones before included."""
        async with self._lock:
            finished, last = 0, -1
            sent: list[MessageExt] = []
            room = self.log.keys.room(self.place, self._bounds)
            for message in messages:
                if sent and len(sent) >= room:
                    break  # those that were sent count only when they were read back
                verdict = self._judge(message)
                if verdict is Verdict.DEAD_LETTER:
                    await self._command(message, ParkingStep.DEAD_LETTER)
                    verdict = self._judge(message)
                if verdict is Verdict.STOP:
                    self._stop_consumer(
                        f"a bound of parked messages is reached in {self._assigned.queue}: "
                        f"{self._bounds}"
                    )
                if verdict is Verdict.PARK:
                    last = await self._append_message(message, FOLLOWS, has_failed=False)
                    sent.append(message)
                elif verdict is not Verdict.SKIP:
                    break
                finished += 1
            if last >= 0:
                await self.log.wait_for(last)
            return finished if self._are_parked(sent) else 0

    async def park_failed(self, message: MessageExt, reason: str) -> bool:
        """Park a key, whose message has failed; False when there is no room, or it is not ours."""
        async with self._lock:
            if not self.log.keys.room(self.place, self._bounds):
                return False
            position = await self._append_message(message, reason, has_failed=True)
            await self.log.wait_for(position)
            if self._are_parked([message]):
                log.warning("%s failed: its key is parked: %s", message, reason)
                return True
            return False

    async def note_left(self, parked: ParkedMessage, command: int, gate: int = -1) -> None:
        """Append that the head of a key has left; `gate` is where its copy lies, or -1."""
        said = self._about(parked, ParkingStep.DONE)
        await self._note(parked, ParkingRecord(**said, command=command, gate=gate))

    async def note_stays(self, parked: ParkedMessage, command: int, reason: str) -> None:
        """Append that the head of a key has failed again: the key stays parked."""
        said = self._about(parked, ParkingStep.STAY)
        await self._note(parked, ParkingRecord(**said, command=command, reason=reason[:512]))

    async def check_age(self) -> None:
        """Do what the bounds say about keys that were parked too long ago."""
        keys = self.log.keys
        for key in keys.too_old(self.place, self._bounds, self.log.stamp_ms):
            if self._bounds.at_bound == "stop":
                self._stop_consumer(
                    f"the key {key!r} of {self._assigned.queue} is parked for more than "
                    f"{self._bounds.age_s} s"
                )
            elif self._bounds.at_bound == "dead_letter":
                async with self._lock:
                    await self._command_key(key, ParkingStep.DEAD_LETTER)

    def lose(self) -> None:
        """Another member has opened the queue since: start it anew, nothing is committed."""
        log.info("another member has opened %s: it restarts here", self._assigned.queue)
        if not self._assigned.is_dropped:
            self._restart_queue(self._assigned)

    async def _note(self, parked: ParkedMessage, record: ParkingRecord) -> None:
        # under the lock: a follower that is being parked now is parked before its key can be free
        async with self._lock:
            position = await self._append(record)
            await self.log.wait_for(position)
            if not self.is_owner():
                self.lose()
        assert parked.key == record.key, "a record is about the message it names"

    async def _certain_offset(self) -> int | None:
        """An offset that the group's committed one cannot fall behind; None: not known yet."""
        now, interruptions = asyncio.get_running_loop().time(), self.log.interruptions
        before = self._committed
        if before and before.interruptions == interruptions and now < before.at_s + SAVED_S:
            return None
        # an idle queue may have none; it is opened again all the same, or it holds the checkpoint
        committed = await self.log.committed_of_group(self._assigned.queue) or 0
        if before is None or before.interruptions != interruptions:
            self._committed = _Committed(now, interruptions, committed)
            return None
        self._committed = None
        return min(before.offset, committed, self._assigned.window.commit_offset)

    async def _open(self, certain: int | None = None) -> None:
        known = self.log.keys.queues.get(self.place)
        self._epoch = max(known.epoch + 1 if known else 1, self.log.stamp_ms)
        # a broker that is killed gives offsets again that it had not saved: what is known of the
        # messages from there on stays in force, so who takes a queue goes by the OPEN before
        start = known.from_offset if known else 0
        if certain is not None:
            start = certain
        topic, queue_id = self.place
        record = ParkingRecord(
            step=ParkingStep.OPEN,
            topic=topic,
            queue_id=queue_id,
            epoch=self._epoch,
            owner=self._owner,
            from_offset=min(start, self._assigned.window.commit_offset),
        )
        await self.log.wait_for(await self._append(record))
        self._opened_s = asyncio.get_running_loop().time()

    def _judge(self, message: MessageExt) -> Verdict:
        mark = self._mark_of(message)
        return self.log.keys.judge(
            self.place,
            self._key_of(message),
            message.queue_offset,
            self._bounds,
            self.log.stamp_ms,
            (mark.order, mark.offset) if mark else None,
            is_being_sent=mark is not None and mark.offset in self.being_sent,
        )

    def _mark_of(self, message: MessageExt) -> CopyMark | None:
        """What a message says that was sent to its queue again for us; None for any other."""
        mark = decode_copy_mark(message.properties.get(COPY_PROPERTY, ""))
        if mark is None or mark[:3] != (self.log.group, *self.place):
            return None
        return mark

    async def _append_message(self, message: MessageExt, reason: str, *, has_failed: bool) -> int:
        topic, queue_id = self.place
        mark = self._mark_of(message)
        record = ParkingRecord(
            step=ParkingStep.PARK,
            topic=topic,
            queue_id=queue_id,
            key=self._key_of(message),
            offset=message.queue_offset,
            order=mark.order if mark else message.queue_offset,
            epoch=self._epoch,
            owner=self._owner,
            has_failed=has_failed,
        )
        now_ms = self.log.stamp_ms
        prepared = parked_form(self.log.topic, message, record, reason, now_ms, self._options)
        return await self._send(prepared)

    async def _append(self, record: ParkingRecord) -> int:
        return await self._send(control_form(self.log.topic, record, self.log.stamp_ms))

    async def _send(self, prepared: PreparedMessage) -> int:
        """Append a record, whatever it takes, unless the queue is dropped meanwhile.

        Nothing else may be decided while it is not known whether it is there: a record that is
        stored late would park a message that was handled since. Twice is no harm.
        """
        failures = 0
        while True:
            try:
                return await self.log.append(prepared)
            except CometError as error:
                if self._assigned.is_dropped:
                    raise
                failures += 1
                log.info("%s takes no record yet: %s", self.log.queue, error)
                pause_s = backoff_s(failures, _PAUSE_FIRST_S, _PAUSE_MOST_S)
                await self._assigned.sleep_unless_dropped(pause_s)

    async def _command(self, message: MessageExt, step: ParkingStep) -> None:
        await self._command_key(self._key_of(message), step)

    async def _command_key(self, key: str, step: ParkingStep) -> None:
        topic, queue_id = self.place
        head = self.log.keys.queues[self.place].keys[key].head()
        if head is None:
            return
        record = ParkingRecord(
            step=step, topic=topic, queue_id=queue_id, key=key, offset=head.offset
        )
        await self.log.wait_for(await self._append(record))

    def _about(self, parked: ParkedMessage, step: ParkingStep) -> dict[str, Any]:
        return {
            "step": step,
            "topic": parked.topic,
            "queue_id": parked.queue_id,
            "key": parked.key,
            "offset": parked.offset,
            "epoch": self._epoch,
            "owner": self._owner,
        }

    def _are_parked(self, messages: Sequence[MessageExt]) -> bool:
        """Whether all of these are parked or done; if not, another member has the queue."""
        if all(self.log.keys.is_parked(self.place, one.queue_offset) for one in messages):
            return True
        self.lose()
        return False
