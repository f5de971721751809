"""Delayed messages: stored in a level's queue, delivered when due, none lost by a restart.

Owns the queues of SCHEDULE_TOPIC_XXXX (level L waits in queue L - 1), how far each level has been
delivered, and config/delayOffset.json. A thread first reads what is not in memory. An entry of
these queues carries its due time where others carry a tags code, so a changed level table does not
affect messages that wait already; `delay_backlog` says what that means for the order.
Invariants: nothing is delivered early; the file never names an offset whose messages are not
durable; a broken record is skipped, and a disk that fails ends no level's delivery.
Java: ScheduleMessageService, HookUtils.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.broker.delivery.delay_backlog import BacklogRange, skip_delivered, split_backlog
from cometmq.broker.delivery.property_limit import fit_properties
from cometmq.broker.delivery.real_destination import destination_of, with_destination
from cometmq.broker.sends.tag_codes import delay_level
from cometmq.errors import ProtocolError
from cometmq.model.topic import SCHEDULE_TOPIC, DataVersion
from cometmq.store.log.mapped_file_queue import NotInMemory
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.store.store_clock import GRAIN_MS
from cometmq.wire.bodies import json_fields
from cometmq.wire.bodies.topic import version_fields, version_of
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.rules.delay_levels import DelayLevels
    from cometmq.store.cold_read_context import ReadContext
    from cometmq.store.json_file import JsonFile
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 60.0
"""Longest sleep between two checks: the clock may have been set meanwhile."""

RETRY_S = 0.1
"""Pause after the store refused a delivery."""

DISK_FAILED_PAUSE_S = 1.0
"""Pause of a level after the disk failed."""

_NEVER_ACCEPTED = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""Statuses of records that the store will never accept."""

_RANGES_KEY = "cometmqRuns"
_BURST = 64
"""Deliveries of one level before the next level is served."""


class _Waiting(NamedTuple):
    """A message of a level's queue: how long it still waits, and its record if it is due."""

    phy_offset: int
    wait_ms: int
    record: bytes | None


class DelayedMessages:
    """Schedules messages and delivers them when due. Belongs to the broker's loop."""

    def __init__(
        self, store: MessageStore, levels: DelayLevels, file: JsonFile, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self.levels = levels
        self._file = file
        self._now_ms = now_ms
        self.offsets: dict[int, int] = {}
        """Level to the next queue offset to deliver."""
        self.delivered = 0
        self.on_delivered: Callable[[tuple[str, int], str, int], None] = _ignore
        """Called with where a delivered message waited, its topic, and its stored bytes."""
        self.version = DataVersion()
        self._saved: dict[str, Any] = {}
        self._writing: asyncio.Future[None] | None = None
        self._is_moved = asyncio.Event()
        self._next_due_ms = 0
        self._paused_until: dict[int, float] = {}
        self._missing: dict[int, NotInMemory] = {}
        """Levels that wait for the disk, and what they need from it."""
        waiting = [queue_id for topic, queue_id in store.queues() if topic == SCHEDULE_TOPIC]
        self._levels_max = max(levels.max_level, *(queue_id + 1 for queue_id in waiting), 0)
        """Levels served: also those beyond a table that became shorter."""
        self._ranges: dict[int, list[BacklogRange]] = {}
        self._load(file.load("offsetTable", stored_places_of))
        self.skipped = skip_delivered(store, self._ranges, store.current_store_ms())
        """Messages found delivered at the start, though their offsets had not been saved."""
        self._update_offsets()

    def schedule(self, draft: MessageDraft) -> None:
        """Redirect a message with a delay level to that level's queue; leave others as they are.

        Java: HookUtils.transformDelayLevelMessage.
        """
        level = delay_level(draft.properties)
        if level <= 0:
            return
        level = self.levels.clamp(level)
        draft.properties = with_destination(draft.properties, draft.topic, draft.queue_id)
        draft.topic = SCHEDULE_TOPIC
        draft.queue_id = level - 1
        self._store.renew_store_time()  # its delay begins now, however long this iteration lasts

    def take_over(self, theirs: StoredDelayOffsets) -> None:
        """Be as far as another broker is. Only where nothing is delivered: on a slave."""
        self.version, self.offsets = theirs.version, dict(theirs.offsets)
        for level in {*self._ranges, *self.offsets, *theirs.ranges}:
            offset = self.offsets.get(level, 0)
            several = theirs.ranges.get(level) or [(offset, offset)]
            self._ranges[level] = [BacklogRange(first, cursor, None) for first, cursor in several]

    def arrived(self, due_ms: int) -> None:
        """A message that is due at this time was stored."""
        if due_ms < self._next_due_ms:
            self._is_moved.set()

    async def run(self) -> None:
        """Deliver due messages, for ever; sleeps until the next one is due."""
        while True:
            self._is_moved.clear()
            wait_s = self.deliver_due()
            if self._missing:
                await self._fetch()
                continue
            if wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(min(wait_s, LONGEST_SLEEP_S)):
                    await self._is_moved.wait()
            except TimeoutError:
                continue

    async def _fetch(self) -> None:
        """Have a thread read what the next messages of some levels need."""
        missing, self._missing = self._missing, {}
        for level, what in missing.items():
            try:
                await self._store.cold_reader.fetch(what)
            except OSError as error:
                self._failed(level, error)

    def deliver_due(self) -> float:
        """Deliver what is due, at most a burst of each level; return seconds until the next is."""
        before = [
            (level, part, part.cursor) for level, ranges in self._ranges.items() for part in ranges
        ]
        delivered = self.delivered
        wait_s = min([self._try_level(level) for level in range(1, self._levels_max + 1)])
        self._next_due_ms = self._store.current_store_ms() + int(wait_s * 1000)
        self._update_offsets()
        if self.delivered != delivered:
            self._store.on_durable(partial(self._on_durable_done, before), local_only=True)
        return wait_s

    def _on_durable_done(
        self, before: list[tuple[int, BacklogRange, int]], status: PutStatus
    ) -> None:
        """Go back to the cursors before a batch whose messages could not be made durable."""
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            self._ranges = {level: [] for level in self._ranges}
            for level, part, cursor in before:
                part.cursor = min(part.cursor, cursor)
                self._ranges[level].append(part)
            self._update_offsets()
            asyncio.get_running_loop().call_later(RETRY_S, self._is_moved.set)

    def _update_offsets(self) -> None:
        """Drop finished ranges; a level's offset is the cursor of its first unfinished range."""
        for level, ranges in self._ranges.items():
            while len(ranges) > 1 and ranges[0].is_done:
                del ranges[0]
            if ranges[0].cursor != self.offsets.get(level, 0):
                self.offsets[level] = ranges[0].cursor

    async def save_in_thread(self) -> None:
        """Write how far each level has come, once all that was delivered before is durable."""
        places = self._places()
        if places == self._saved:
            return
        safe: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._store.on_durable(
            lambda status: None if safe.done() else safe.set_result(status), local_only=True
        )
        if await safe is PutStatus.PUT_OK:
            self.version = self.version.next(self._now_ms())
            data = self._file.encode({"dataVersion": version_fields(self.version), **places})
            writing = asyncio.to_thread(self._try_write, data, places)
            self._writing = asyncio.ensure_future(writing)
            await asyncio.shield(self._writing)

    async def written(self) -> None:
        """Wait until no thread writes the file any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def to_json(self) -> dict[str, Any]:
        """The file's content. Several ranges of one level are listed under a key of ours."""
        return {"dataVersion": version_fields(self.version), **self._places()}

    def _places(self) -> dict[str, Any]:
        several = {
            level: [[part.first, part.cursor] for part in ranges]
            for level, ranges in self._ranges.items()
            if len(ranges) > 1
        }
        offsets = {"offsetTable": dict(self.offsets)}
        return {**offsets, _RANGES_KEY: several} if several else offsets

    def _try_write(self, data: bytes, places: dict[str, Any]) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            log.warning("%s is not written: %s", self._file.path, error)
        else:
            self._saved = places

    def _try_level(self, level: int) -> float:
        """Deliver a level; when the disk fails, log that and try again after a pause."""
        until = self._paused_until.get(level)
        if until is not None and (pause_s := until - asyncio.get_running_loop().time()) > 0:
            return pause_s
        try:
            wait_s = min([self._deliver_range(level, part) for part in self._ranges[level]])
        except NotInMemory as missing:
            self._missing[level] = missing
            return 0.0
        except OSError as error:
            return self._failed(level, error)
        self._paused_until.pop(level, None)
        return wait_s

    def _failed(self, level: int, error: OSError) -> float:
        if level not in self._paused_until:
            log.warning(
                "delayed messages of level %d cannot be read, trying again: %s", level, error
            )
        self._paused_until[level] = asyncio.get_running_loop().time() + DISK_FAILED_PAUSE_S
        return DISK_FAILED_PAUSE_S

    def _deliver_range(self, level: int, part: BacklogRange) -> float:
        """Deliver what is due; NotInMemory: fetch that, and go on where the cursor is."""
        context, queue_id = self._store.cold_reader.cached, level - 1
        part.cursor = max(part.cursor, context.min_offset(SCHEDULE_TOPIC, queue_id))
        for _ in range(_BURST):
            if part.is_done:
                return LONGEST_SLEEP_S
            found = self._read_waiting(level, part.cursor, context)
            if found is None:
                return LONGEST_SLEEP_S
            if found.wait_ms > 0:
                return found.wait_ms / 1000
            if found.record is None:
                log.error(
                    "the delayed message at byte %d is not delivered: its record is damaged or "
                    "deleted",
                    found.phy_offset,
                )
            elif not self._deliver(queue_id, found.phy_offset, found.record):
                return RETRY_S
            part.cursor += 1
        return 0.0

    def _read_waiting(self, level: int, offset: int, context: ReadContext) -> _Waiting | None:
        """The message at an offset of a level's queue; its record only if it is due."""
        entry = context.entry(SCHEDULE_TOPIC, level - 1, offset)
        if entry is None:
            return None
        phy_offset, _, due_ms = entry
        # early neither by the clock nor by the time at which it will be stored
        wait_ms = due_ms + GRAIN_MS - self._store.current_store_ms()
        if wait_ms > 0 and not self._is_clock_back(level, offset, wait_ms, context):
            return _Waiting(phy_offset, wait_ms, None)
        return _Waiting(phy_offset, 0, context.record_at(phy_offset))

    def _is_clock_back(self, level: int, offset: int, wait_ms: int, context: ReadContext) -> bool:
        """Whether a message would wait too long: the clock was set back after it was stored."""
        if wait_ms <= self.levels.delay_ms(level):
            return False
        return (
            context.store_time(SCHEDULE_TOPIC, level - 1, offset) > self._store.current_store_ms()
        )

    def _deliver(self, from_queue: int, phy_offset: int, record: bytes) -> bool:
        """Put one message into its topic; False when the store does not accept it now."""
        try:
            found = stored.decode(record)
            raw = stored.shown_properties(found.properties)
            topic, queue_id = destination_of(raw)
        except ProtocolError as error:
            log.error("the delayed message at byte %d is not delivered: %s", phy_offset, error)
            return True
        draft = MessageDraft.copy_of(found, topic, queue_id, fit_properties(raw)[0])
        draft.prepared_offset = found.prepared_offset
        placed = self._store.put(draft)
        status = placed.status
        if status in _NEVER_ACCEPTED:
            log.error("the delayed message at byte %d is not delivered: %s", phy_offset, status)
            return True
        if status is not PutStatus.PUT_OK:
            return False
        self.delivered += 1
        self.on_delivered((SCHEDULE_TOPIC, from_queue), topic, placed.size)
        return True

    def _load(self, found: StoredDelayOffsets | None) -> None:
        saved: dict[int, list[tuple[int, int]]] = {}
        if found is not None:
            self.version, self.offsets, saved = found
        for level in range(1, self._levels_max + 1):
            delay_ms, offset = self.levels.delay_ms(level), self.offsets.get(level, 0)
            ranges = split_backlog(self._store, level, offset, saved.get(level, ()), delay_ms)
            self._ranges[level] = ranges
        self._saved = self._places()


class StoredDelayOffsets(NamedTuple):
    """What delayOffset.json holds: offsets by level, and (first, cursor) of their ranges."""

    version: DataVersion
    offsets: dict[int, int]
    ranges: dict[int, list[tuple[int, int]]]


def stored_places_of(obj: json_fields.Json) -> StoredDelayOffsets:
    """What delayOffset.json holds; ProtocolError where it is misshapen."""
    several = json_fields.object_of(obj.get(_RANGES_KEY), _RANGES_KEY)
    ranges = {
        json_fields.as_number(level, _RANGES_KEY): json_fields.items(several, level, _range_of)
        for level in several
    }
    offsets = json_fields.number_table(obj.get("offsetTable"))
    return StoredDelayOffsets(version_of(obj.get("dataVersion")), offsets, ranges)


def _range_of(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ProtocolError(f"a range of {_RANGES_KEY} is no pair")
    return json_fields.as_number(value[0], _RANGES_KEY), json_fields.as_number(
        value[1], _RANGES_KEY
    )


def _ignore(from_queue: tuple[str, int], topic: str, size: int) -> None:
    """Until somebody counts deliveries."""
