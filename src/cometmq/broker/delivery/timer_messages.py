"""Messages at a time of their own: taken in from the timer topic, delivered when due.

Every message of the timer topic is filed under the slot of its time (`store/timers`); a slot whose
time has come is delivered, one message after the other, to where its messages are for. What a
recall names is left out; a time beyond the wheel is put back into the topic on its way.
Invariants: nothing is delivered early; the checkpoint never passes a message whose delivery is not
durable; after a kill what was delivered since the last checkpoint is found in the log.
Java: TimerMessageStore.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.delivery.delivered_timers import DEQUEUE_MS, DeliveredTimers
from cometmq.broker.delivery.due_slot import DueSlot
from cometmq.broker.delivery.property_limit import fit_properties
from cometmq.broker.delivery.real_destination import destination_of
from cometmq.broker.delivery.timer_schedule import OUT_MS, RECALL_KEY
from cometmq.errors import ProtocolError
from cometmq.model.topic import TIMER_TOPIC
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.store.store_clock import GRAIN_MS
from cometmq.store.timers.timer_index import NewTimer
from cometmq.wire.java_hash import java_hash
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.store.message_store import MessageStore
    from cometmq.store.timers.timer_checkpoint import TimerProgress
    from cometmq.store.timers.timer_index import TimerIndex, TimerSnapshot
    from cometmq.store.timers.timer_wheel import Slot
    from cometmq.wire.records.log_record import StoredRecord

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 60.0
"""Longest sleep while no timer waits: the clock may have been set meanwhile."""
RETRY_S = 0.1
"""Pause after the store refused a delivery."""
DISK_FAILED_PAUSE_S = 1.0
LATE_MS = 1_000
"""So late a slot is delivered though messages of the timer topic wait to be taken in."""
IDLE_SAVE_MS = 10_000
"""Time between checkpoints while slots pass that have no timers."""

_BURST = 64
"""Messages taken in or delivered in one iteration of the loop."""
_NEVER_ACCEPTED = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
_COUNT = re.compile(rb"[0-9]{1,9}")
"""A count of rolls; a client may write anything there."""
_ROLL_TIMES, _ENQUEUE_MS, _UNIQ_KEY = b"TIMER_ROLL_TIMES", b"TIMER_ENQUEUE_MS", b"UNIQ_KEY"


class TimerMessages:
    """Takes timer messages in and delivers them. Belongs to the broker's loop."""

    def __init__(self, store: MessageStore, index: TimerIndex, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._index = index
        self._now_ms = now_ms
        self.delivered = 0
        self.recalled = 0
        self.skipped = 0
        """Timers found delivered at the start, though the checkpoint did not have them."""
        self.on_delivered: Callable[[tuple[str, int], str, int], None] = _ignore
        """Called with where a delivered message waited, its topic, and its stored bytes."""
        self._known = DeliveredTimers(store, index.scan_from)
        self._known_until_ms = store.current_store_ms()
        self._due: DueSlot | None = None
        self._due_began = 0
        """Where the log ended when the delivery of that slot began."""
        self._unsafe: list[tuple[int, Slot]] = []
        """Slots that are delivered and not durably so."""
        self._followed: int | None = None
        """Where the deliveries of the master's slot begin, for a slave."""
        self._has_arrived = asyncio.Event()
        self._saving: asyncio.Future[None] | None = None

    def arrived(self) -> None:
        """A message came to the timer topic."""
        self._has_arrived.set()

    # ---- delivery

    async def run(self) -> None:
        """Take in and deliver, for ever; sleeps until the next slot is due."""
        self._followed = None  # who delivers follows nobody
        while True:
            self._has_arrived.clear()
            wait_s = await self._step()
            if wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_arrived.wait()
            except TimeoutError:
                continue

    async def _step(self) -> float:
        """One burst; returns seconds until there is more to do."""
        try:
            if not self._index.is_begun:
                return await self._begin()
            try:
                return self.work()
            except NotInMemory as missing:
                await self._store.cold_reader.fetch(missing)
                return 0.0
        except OSError as problem:
            log.warning("timer messages cannot be delivered, trying again: %s", problem)
            await asyncio.sleep(DISK_FAILED_PAUSE_S)
            return 0.0

    async def _begin(self) -> float:
        """Write the first checkpoint before the first record: without it none would be known."""
        if self._store.max_offset(TIMER_TOPIC, 0) == 0:
            return LONGEST_SLEEP_S
        await self._save()
        return 0.0 if self._index.is_begun else DISK_FAILED_PAUSE_S

    def work(self) -> float:
        """Take in a burst, or deliver one; returns seconds until there is more to do.

        NotInMemory: fetch that first. OSError: the disk failed; nothing is lost.
        """
        is_behind = self._take_in()
        step_ms = self._index.precision_ms
        now_ms = self._store.current_store_ms()
        if is_behind and self._due is None and now_ms - self._index.next_ms < 2 * step_ms + LATE_MS:
            return 0.0  # a recall among what waits must not come after its slot
        # early neither by the clock nor by the time at which it will be stored
        due_ms = (now_ms - GRAIN_MS) // step_ms * step_ms
        delivered = self.delivered
        try:
            wait_s = self._deliver(due_ms)
        finally:
            if self.delivered != delivered:
                unsafe, self._unsafe = self._unsafe, []
                done = partial(self._on_durable_done, unsafe)
                self._store.on_durable(done, local_only=True)
        if is_behind:
            return 0.0
        if wait_s is not None:
            return wait_s
        if not self._index.has_slots:
            return LONGEST_SLEEP_S
        return max(0.001, (due_ms + step_ms + GRAIN_MS - now_ms) / 1_000)

    def _take_in(self, most: int = _BURST) -> bool:
        """File up to `most` messages of the timer topic; False when there is none."""
        index, context = self._index, self._store.cold_reader.cached
        first = context.min_offset(TIMER_TOPIC, 0)
        if index.queue_offset < first:
            log.error(
                "%d timer messages were deleted with old files of the log before they were due",
                first - index.queue_offset,
            )
            index.queue_offset = first
        for taken in range(most):
            entry = context.entry(TIMER_TOPIC, 0, index.queue_offset)
            if entry is None:
                return taken > 0
            record = context.record_at(entry[0])
            self._file(entry[0], entry[1], record)
            index.queue_offset += 1
        return True

    def _file(self, phy_offset: int, size: int, record: bytes | None) -> None:
        try:
            if record is None:
                raise ProtocolError("its record is damaged or deleted")
            found = stored.decode(record)
            raw = found.properties
            slot_ms = int(properties.find(raw, OUT_MS) or b"")
            topic, _ = destination_of(raw)
            if topic == TIMER_TOPIC:
                raise ProtocolError("it is for the timer topic itself, without end")
        except (ProtocolError, ValueError) as problem:
            log.error("the timer message at byte %d is not delivered: %s", phy_offset, problem)
            return
        is_recall = properties.find(raw, RECALL_KEY) is not None
        message = (phy_offset, size, java_hash(topic))
        self._index.add(
            NewTimer(slot_ms, found.store_ms, message, is_recall),
            self._store.current_store_ms(),
            is_in_delivery=self._due is not None,
            is_slave=self._followed is not None,
        )
        self._index.counts.add(topic, -1 if is_recall else 1, self._now_ms())

    def _deliver(self, before_ms: int) -> float | None:
        """Deliver a burst of what is due; returns a pause, or None when nothing more is due."""
        if self._due is None:
            slot_ms = self._index.first_slot(before_ms)
            if slot_ms is None:
                return None
            if slot_ms > self._known_until_ms:
                self._known.clear()
            self._due = DueSlot(slot_ms, self._index.last_record(slot_ms))
            self._due_began = self._store.max_phy_offset
        due = self._due
        if due.read_part(self._index.log) or self._read_recalls(due):
            return 0.0
        for _ in range(_BURST):
            if due.is_done:
                self._unsafe.append((due.slot_ms, self._index.finish(due.slot_ms)))
                self._due = None
                return 0.0
            phy_offset, is_roll = due.next_timer()
            record = self._store.cold_reader.cached.record_at(phy_offset)
            if not self._deliver_one(due, phy_offset, record, is_roll=is_roll):
                return RETRY_S
            due.delivered += 1
        return 0.0

    def _read_recalls(self, due: DueSlot) -> bool:
        """Read what is recalled, a burst at a time; False once all is known."""
        for _ in range(min(_BURST, len(due.recalls))):
            record = self._store.cold_reader.cached.record_at(due.recalls[-1])
            due.recalls.pop()
            if record is not None:
                due.recalled |= _recalled_by(record)
        return bool(due.recalls)

    def _deliver_one(
        self, due: DueSlot, phy_offset: int, record: bytes | None, *, is_roll: bool
    ) -> bool:
        """Put one message where it is for; False when the store does not accept it now."""
        try:
            if record is None:
                raise ProtocolError("its record is damaged or deleted")
            found = stored.decode(record)
            raw = stored.shown_properties(found.properties)
            topic, queue_id = destination_of(raw)
        except ProtocolError as problem:
            log.error("the timer message at byte %d is not delivered: %s", phy_offset, problem)
            return True
        if not is_roll and _is_recalled(raw, topic, due.recalled):
            self.recalled += 1
            return True
        waited_for = topic
        if is_roll:
            topic, queue_id = TIMER_TOPIC, 0
            times = properties.find(raw, _ROLL_TIMES) or b""
            count = int(times) if _COUNT.fullmatch(times) else 0
            raw = properties.put(raw, _ROLL_TIMES, b"%d" % (count + 1))
        if self._known.take(topic, found.body_crc, raw):
            self.skipped += 1
            return True
        is_put = self._put(found, topic, queue_id, raw, phy_offset)
        if is_put:
            self._index.counts.add(waited_for, -1, self._now_ms())
        return is_put

    def _put(
        self, found: StoredRecord, topic: str, queue_id: int, raw: bytes, phy_offset: int
    ) -> bool:
        raw = properties.put(raw, _ENQUEUE_MS, b"%d" % found.store_ms)
        raw = properties.put(raw, DEQUEUE_MS, b"%d" % self._store.current_store_ms())
        draft = MessageDraft.copy_of(found, topic, queue_id, fit_properties(raw)[0])
        draft.prepared_offset = found.prepared_offset
        placed = self._store.put(draft)
        if placed.status in _NEVER_ACCEPTED:
            log.error(
                "the timer message at byte %d is not delivered: %s", phy_offset, placed.status
            )
            return True
        if placed.status is not PutStatus.PUT_OK:
            return False
        self.delivered += 1
        if topic != TIMER_TOPIC:
            self.on_delivered((TIMER_TOPIC, 0), topic, placed.size)
        return True

    def _on_durable_done(self, unsafe: list[tuple[int, Slot]], status: PutStatus) -> None:
        """Deliver again the slots whose messages the disk did not take."""
        if status is not PutStatus.SERVICE_NOT_AVAILABLE:
            return
        self._due = None
        for slot_ms, slot in unsafe:
            self._index.restore(slot_ms, slot)
        asyncio.get_running_loop().call_later(RETRY_S, self._has_arrived.set)

    # ---- the checkpoint

    async def save_in_thread(self, idle_ms: int = IDLE_SAVE_MS) -> None:
        """Make durable how far the timers are, once all that was delivered before is durable.

        Nothing happens where only empty slots have passed, for less than `idle_ms`.
        """
        if self._index.is_begun and not self._index.is_saved(idle_ms):
            await self._save()

    def progress(self) -> TimerProgress:
        """How far the timers are, for slaves."""
        return self._index.progress(self._scan_from())

    def _scan_from(self) -> int:
        """Where in the log the deliveries of slots begin that are not delivered whole."""
        if self._followed is not None:
            return self._followed
        return self._due_began if self._due is not None else self._store.max_phy_offset

    def metrics(self) -> bytes:
        """How many timers wait for each topic, as JSON."""
        if not self._index.waiting:
            self._index.counts.reset()
        return self._index.counts.encode()

    def waiting(self) -> list[tuple[str, int]]:
        """Each topic for which timers wait, with how many."""
        return self._index.counts.each() if self._index.waiting else []

    async def follow(
        self, master: TimerProgress, counts: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        """Come as far as a master is: a slave takes in, and delivers nothing.

        Its log must have what the master's had. What that has not taken in is left for later:
        late ones among it are not delivered there. A master of Apache's does not say where the
        deliveries of its slot begin: some may come twice once this slave delivers.
        """
        index = self._index
        self._followed = (
            self._store.max_phy_offset if master.scan_from is None else master.scan_from
        )
        if not index.is_begun:
            if not self._store.max_offset(TIMER_TOPIC, 0):
                return
            index.begin_at(master.next_ms)
            await self._save()
        while index.queue_offset < master.queue_offset and index.is_begun:
            try:
                if not self._take_in(min(_BURST, master.queue_offset - index.queue_offset)):
                    break
            except NotInMemory as missing:
                await self._store.cold_reader.fetch(missing)
            await asyncio.sleep(0)
        index.pass_over(master.next_ms)
        if counts is not None:
            index.counts.take_over(counts)

    async def _save(self) -> None:
        index = self._index
        try:
            snapshot = index.snapshot(self._scan_from())
        except OSError as problem:
            log.warning("the timers are not saved: %s", problem)
            return
        safe: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._store.on_durable(
            lambda status: None if safe.done() else safe.set_result(status), local_only=True
        )
        try:
            is_safe = await safe is not PutStatus.SERVICE_NOT_AVAILABLE
        except asyncio.CancelledError:
            self._end_save(snapshot, is_written=False)
            raise
        if not is_safe:
            self._end_save(snapshot, is_written=False)
            return
        writing = asyncio.to_thread(index.write, snapshot, self._now_ms())
        self._saving = saving = asyncio.ensure_future(writing)
        saving.add_done_callback(partial(self._write_ended, snapshot))
        await asyncio.wait([saving])

    def _write_ended(self, snapshot: TimerSnapshot, saving: asyncio.Future[None]) -> None:
        problem = saving.exception()
        if problem is not None:
            log.warning("the timers are not saved: %s", problem)
        self._end_save(snapshot, is_written=problem is None)

    def _end_save(self, snapshot: TimerSnapshot, *, is_written: bool) -> None:
        log_first = self._store.min_phy_offset
        self._index.end_save(snapshot, is_written=is_written, log_first=log_first)

    async def written(self) -> None:
        """Wait until no thread writes the files any more."""
        if self._saving is not None:
            await asyncio.wait([self._saving])


def timer_offset(store: MessageStore, phy_offset: int) -> int | None:
    """Where in its queue the timer message at a byte of the log is; None: none is there."""
    record = store.record_at(phy_offset)
    try:
        found = stored.decode(record) if record else None
    except ProtocolError:
        return None
    return found.queue_offset if found is not None and found.topic == TIMER_TOPIC else None


def _is_recalled(raw: bytes, topic: str, recalled: set[bytes]) -> bool:
    """Whether a recall names the message."""
    if not recalled or (key := properties.find(raw, _UNIQ_KEY)) is None:
        return False
    return b"%s+%s" % (topic.encode(), key) in recalled


def _recalled_by(record: bytes) -> set[bytes]:
    """The topic and UNIQ_KEY of what a recall takes away: of its own topic only.

    With appendTopicForTimerDeleteKey of Apache's brokers, and before 5.5, the key it names has the
    topic before it already.
    """
    try:
        raw = stored.decode(record).properties
        topic = destination_of(raw)[0].encode()
    except ProtocolError:
        return set()  # reported when it was taken in
    key = properties.find(raw, RECALL_KEY) or b""
    return {b"%s+%s" % (topic, key)} | ({key} if key.startswith(topic + b"+") else set())


def _ignore(from_queue: tuple[str, int], topic: str, size: int) -> None:
    """Until somebody counts deliveries."""
