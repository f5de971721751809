"""Delayed messages: held back on a level's queue, delivered when due, none lost by a restart.

Owns the queues of SCHEDULE_TOPIC_XXXX (level L waits in queue L - 1), how far each level has been
delivered, and config/delayOffset.json. An entry of these queues carries its due time where others
carry a tag code, so a changed level table does not move what waits already.
Invariants: nothing is delivered early; the file never names a place whose messages are not safe;
a record that makes no sense is passed over, and a disk that fails ends no level's delivery.
Java: ScheduleMessageService, HookUtils.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from cometmq.broker.fitting import fit
from cometmq.broker.tag_codes import delay_level
from cometmq.errors import ProtocolError
from cometmq.model.topic import SCHEDULE_TOPIC, DataVersion
from cometmq.store.results import Draft, PutStatus
from cometmq.wire import properties, stored
from cometmq.wire.bodies.topic import version_fields, version_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.rules.delay import DelayLevels
    from cometmq.store.json_file import JsonFile
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 60.0
"""Looked at again after so long at the latest: the clock may have been set."""

RETRY_S = 0.1
"""Pause after the store refused a delivery."""

TROUBLE_S = 1.0
"""Pause of a level after the disk failed."""

_NEVER = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""What the store answers to a record that it will not take another time either."""

_QUEUE_ID_MAX = 0x7FFFFFFF
_BURST = 64
"""Deliveries of one level before others get their turn."""


class Delays:
    """Holds messages back and delivers them. Belongs to the broker's loop."""

    def __init__(
        self, store: MessageStore, levels: DelayLevels, file: JsonFile, now_ms: Callable[[], int]
    ) -> None:
        self._store, self._levels, self._file, self._now_ms = store, levels, file, now_ms
        self.offsets: dict[int, int] = {}
        """Level to the next queue offset to deliver."""
        self.delivered = 0
        self.on_delivered: Callable[[str, int, int], None] = _nobody
        """Called with the topic of a delivered message, 1, and its stored bytes."""
        self.version = DataVersion()
        self._saved: dict[int, int] = {}
        self._is_moved, self._next_due_ms = asyncio.Event(), 0
        self._failing: set[int] = set()
        waiting = [queue_id for topic, queue_id in store.queues() if topic == SCHEDULE_TOPIC]
        self._levels_max = max(levels.max_level, *(queue_id + 1 for queue_id in waiting), 0)
        """Levels looked at: also those that a shorter table left behind."""
        self._load(file.load())

    def hold_back(self, draft: Draft) -> None:
        """Send a message with a delay level to that level's queue; leave others as they are."""
        level = delay_level(draft.properties)
        if level <= 0:
            return
        level = self._levels.clamp(level)
        raw = draft.properties
        for key, value in ((b"REAL_TOPIC", draft.topic), (b"REAL_QID", str(draft.queue_id))):
            raw = properties.append(properties.remove(raw, key), key, value.encode())
        draft.properties, draft.topic, draft.queue_id = raw, SCHEDULE_TOPIC, level - 1

    def arrived(self, due_ms: int) -> None:
        """A message came to be held back until then."""
        if due_ms < self._next_due_ms:
            self._is_moved.set()

    async def run(self) -> None:
        """Deliver what is due, for ever; sleeps exactly until the next message is."""
        while True:
            self._is_moved.clear()
            wait_s = self.deliver_due()
            if wait_s <= 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(min(wait_s, LONGEST_SLEEP_S)):
                    await self._is_moved.wait()
            except TimeoutError:
                continue

    def deliver_due(self) -> float:
        """Deliver what is due, at most a burst of each level; return seconds until the next is."""
        before, delivered = dict(self.offsets), self.delivered
        wait_s = min([self._try_level(level) for level in range(1, self._levels_max + 1)])
        self._next_due_ms = self._now_ms() + int(wait_s * 1000)
        if self.delivered != delivered:
            self._store.settle(partial(self._settled, before))
        return wait_s

    def _settled(self, before: dict[int, int], status: PutStatus) -> None:
        """Go back to where a turn began when what it delivered could not be kept."""
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            for level, offset in self.offsets.items():
                self.offsets[level] = min(offset, before.get(level, 0))
            asyncio.get_running_loop().call_later(RETRY_S, self._is_moved.set)

    def save(self) -> None:
        """Write how far each level has come, once all that was delivered before is safe."""
        if self.offsets == self._saved:
            return
        offsets = dict(self.offsets)

        def write(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self._write(offsets)

        self._store.settle(write)

    def to_json(self, offsets: dict[int, int] | None = None) -> dict[str, Any]:
        """The file's content."""
        return {
            "dataVersion": version_fields(self.version),
            "offsetTable": dict(self.offsets if offsets is None else offsets),
        }

    def _write(self, offsets: dict[int, int]) -> None:
        self.version = self.version.next(self._now_ms())
        try:
            self._file.save(self.to_json(offsets))
        except OSError as error:
            log.warning("%s is not written: %s", self._file.path, error)
        else:
            self._saved = offsets

    def _try_level(self, level: int) -> float:
        """Deliver a level; when the disk fails, say so and come back to it."""
        try:
            wait_s = self._deliver_level(level)
        except OSError as error:
            if level not in self._failing:
                self._failing.add(level)
                log.warning(
                    "delayed messages of level %d cannot be read, trying again: %s", level, error
                )
            return TROUBLE_S
        self._failing.discard(level)
        return wait_s

    def _deliver_level(self, level: int) -> float:
        store, queue_id = self._store, level - 1
        offset = self._start_of(level)
        for _ in range(_BURST):
            entry = store.entry(SCHEDULE_TOPIC, queue_id, offset)
            if entry is None:
                return LONGEST_SLEEP_S
            phy_offset, _, due_ms = entry
            wait_ms = due_ms - self._now_ms()
            if wait_ms > 0 and not self._is_clock_back(level, offset, wait_ms):
                return wait_ms / 1000
            record = store.record_at(phy_offset)
            if record is not None and not self._deliver(phy_offset, record):
                return RETRY_S
            offset += 1
            self.offsets[level] = offset
        return 0.0

    def _is_clock_back(self, level: int, offset: int, wait_ms: int) -> bool:
        """Whether a message waits too long because the clock was set back after it was stored."""
        if wait_ms <= self._levels.delay_ms(level):
            return False
        return self._store.store_time(SCHEDULE_TOPIC, level - 1, offset) > self._now_ms()

    def _start_of(self, level: int) -> int:
        """Where to go on, moved into what the queue still holds."""
        queue_id = level - 1
        offset = self.offsets.get(level, 0)
        first = self._store.min_offset(SCHEDULE_TOPIC, queue_id)
        last = self._store.max_offset(SCHEDULE_TOPIC, queue_id)
        if first <= offset <= last:
            return offset
        self.offsets[level] = found = first if offset < first else last
        return found

    def _deliver(self, phy_offset: int, record: bytes) -> bool:
        """Put one message where it belongs; False when the store does not take it now."""
        try:
            found = stored.decode(record)
            raw = stored.shown_properties(found.properties)
            topic, queue_id = _goal(raw)
        except ProtocolError as error:
            log.error("the delayed message at byte %d is not delivered: %s", phy_offset, error)
            return True
        draft = Draft(
            topic,
            queue_id,
            found.body,
            fit(raw)[0],
            flag=found.flag,
            sys_flag=found.sys_flag,
            born_ms=found.born_ms,
            born_host=found.born_host,
            reconsume_times=found.reconsume_times,
            prepared_offset=found.prepared_offset,
            was_stored=True,
        )
        placed = self._store.put(draft)
        status = placed.status
        if status in _NEVER:
            log.error("the delayed message at byte %d is not delivered: %s", phy_offset, status)
            return True
        if status is not PutStatus.PUT_OK:
            return False
        self.delivered += 1
        self.on_delivered(topic, 1, placed.size)
        return True

    def _load(self, value: Any) -> None:
        found = value if isinstance(value, dict) else {}
        self.version = version_of(found.get("dataVersion"))
        offsets = found.get("offsetTable") or {}
        self.offsets = {int(level): int(offset) for level, offset in offsets.items()}
        self._saved = dict(self.offsets)


def _nobody(topic: str, count: int, size: int) -> None:
    """Nobody counts yet."""


def _goal(raw: bytes) -> tuple[str, int]:
    """The topic and the queue a delayed message is for; ProtocolError when they are not told."""
    topic, queue_id = properties.find(raw, b"REAL_TOPIC"), properties.find(raw, b"REAL_QID")
    try:
        found = (topic or b"").decode(), int(queue_id or b"")
    except ValueError:
        found = "", -1
    if not found[0] or not 0 <= found[1] <= _QUEUE_ID_MAX:
        raise ProtocolError(f"it is for queue {queue_id!r} of topic {topic!r}")
    return found
