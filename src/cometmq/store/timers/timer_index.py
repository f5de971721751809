"""Which timers wait, and for when: the wheel, the log of timers and the checkpoint together.

All of it follows from the messages in the timer topic's queue and from how far these were
delivered. `add` files a message under its slot, `slot` gives the last record of one, `finish` ends
it. Durable by `snapshot` on the loop and `write` in a thread, in this order: the log of timers, the
wheel, the checkpoint. So after a crash the checkpoint is never ahead of the others, and what they
have beyond it is dropped and taken in again.
Java: TimerMessageStore (its files).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import StoreCorrupt
from cometmq.rules.timer_times import rolled_slot
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles
from cometmq.store.timers.timer_checkpoint import TimerCheckpoint, TimerProgress
from cometmq.store.timers.timer_counts import TimerCounts
from cometmq.store.timers.timer_log import KIND_RECALL, KIND_ROLL, KIND_TIMER, NOWHERE, TimerLog
from cometmq.store.timers.timer_wheel import SLOTS, Slot, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.mapped_file_queue import Segment

log = logging.getLogger(__name__)

_OPEN_FILES = 8
_GONE = Slot(NOWHERE, NOWHERE, 0)


class NewTimer(NamedTuple):
    """A message of the timer topic."""

    slot_ms: int
    stored_ms: int
    """From when on its slot counts as near or far: the same on a master and its slaves."""
    message: tuple[int, int, int]
    """Its place in the commit log, its size, the hash of its topic's name."""
    is_recall: bool = False


class TimerSnapshot(NamedTuple):
    """What one write makes durable."""

    progress: TimerProgress
    changed: dict[int, Slot]
    segments: list[Segment]
    counter: int
    counts: bytes
    """See `TimerCounts`."""


class TimerIndex:
    """The timers of one store. Belongs to its loop, but for `write`."""

    def __init__(
        self,
        files: Files,
        root: Path,
        settings: StoreSettings,
        now_ms: int,
        offset_of: Callable[[int], int | None],
    ) -> None:
        """Read what is there. Raises StoreCorrupt, NotAStore or OSError.

        `offset_of` gives the queue offset of the timer message at a byte of the commit log, or
        None: after a kill Apache's checkpoint may name messages that its log of timers lost.
        """
        self.precision_ms = precision_ms = settings.timer_precision_ms
        self._window_slots = settings.timer_roll_window_slot
        self._checkpoint = TimerCheckpoint(files, root / "config" / "timercheck")
        self.counts = TimerCounts(files, root / "config" / "timermetrics")
        """How many timers wait for each topic."""
        self._wheel = TimerWheel(files, root / "timerwheel", precision_ms)
        self._records = MappedFileQueue(
            files, root / "timerlog", settings.timer_log_file_bytes, OpenFiles(_OPEN_FILES)
        )
        self.log = TimerLog(self._records)
        self.next_ms = now_ms // precision_ms * precision_ms
        """The first slot that was not delivered whole."""
        self.queue_offset = 0
        """The first message of the timer topic that was not taken in."""
        self.scan_from: int | None = None
        """See `TimerProgress`; as it was found at the start."""
        self.waiting = 0
        """Timers in all slots; a recall takes one away."""
        self._synced = 0
        self._counter = 0
        self._saved: tuple[int, int, int] | None = None
        """`next_ms`, `queue_offset` and the end of the log as the checkpoint has them."""
        self._records.load()
        self._load(files, root)
        if self.is_begun and self.scan_from is None:
            self._take_back(offset_of)

    def _load(self, files: Files, root: Path) -> None:
        progress = self._checkpoint.read()
        if progress is None:
            self._refuse_unknown(files, root)
            return
        known_ms = progress.precision_ms
        if known_ms is not None and known_ms != self.precision_ms:
            raise StoreCorrupt(
                f"the timers of {root} were made with timerPrecisionMs={known_ms}, which stays for "
                f"the life of a store, not {self.precision_ms}: set it back"
            )
        end = progress.log_end
        if self._records.missing() or not self._records.first <= end <= self._records.end:
            raise StoreCorrupt(
                f"{root / 'timerlog'} lacks files: it should hold {end} bytes; bring them back, or "
                f"{_HOW_TO_START_ANEW}"
            )
        self.next_ms, self.queue_offset = progress.next_ms, progress.queue_offset
        self.scan_from = progress.scan_from
        self._wheel.load(self.next_ms)
        self.log.cut(end)
        self._synced = end
        self._relink(end)
        self.waiting = sum(slot.timers for slot in self._wheel.slots.values())
        self._saved = (self.next_ms, self.queue_offset, end)

    def _refuse_unknown(self, files: Files, root: Path) -> None:
        """Raise StoreCorrupt where there are timers, and not how far they were delivered."""
        if self._records.bases or files.stat(root / "timerwheel") is not None:
            raise StoreCorrupt(
                f"{self._checkpoint.path} is missing, so which timer messages of {root} were "
                f"delivered is not known; bring it back, or {_HOW_TO_START_ANEW}"
            )

    def _relink(self, end: int) -> None:
        """Let no slot point at records from `end` on: they were dropped, and are taken in again."""
        slots = self._wheel.slots
        cut = {slot_ms: slot for slot_ms, slot in slots.items() if slot.last >= end}
        if not cut:
            return
        kept = dict.fromkeys(cut, _GONE)
        first = max(self._records.first, min(slot.first for slot in cut.values()))
        for at, record in self.log.records(first, end):
            if (slot := kept.get(record.slot_ms)) is not None:
                begins = at if slot is _GONE else slot.first
                kept[record.slot_ms] = Slot(begins, at, slot.timers + _weight(record.kind))
        for slot_ms, slot in kept.items():
            self._wheel.put(slot_ms, slot)
            if slot is _GONE:
                del slots[slot_ms]
        log.warning("%d slots of timers were put back to byte %d", len(cut), end)

    def _take_back(self, offset_of: Callable[[int], int | None]) -> None:
        """Take in again what lies behind the message of the last record that was kept."""
        newest = self.log.last_record()
        if newest is not None and (offset := offset_of(newest.phy_offset)) is not None:
            self.queue_offset = min(self.queue_offset, offset + 1)

    def count_at(self, slot_ms: int) -> int:
        """How many timers wait for a slot."""
        slot = self._wheel.slots.get(slot_ms)
        return 0 if slot is None else slot.timers

    def add(
        self, timer: NewTimer, now_ms: int, *, is_in_delivery: bool = False, is_slave: bool = False
    ) -> None:
        """File a message, or a recall, under its slot. OSError: the disk refused; nothing is filed.

        One that is late goes into the first slot whose delivery has not begun: the first one, or
        with `is_in_delivery` the next. With `is_slave` it is left out: a master has delivered it.
        """
        assert self.is_begun, "a record without a checkpoint would make the store unknown"
        kind = KIND_TIMER | (KIND_RECALL if timer.is_recall else 0)
        step = self.precision_ms
        slot_ms = timer.slot_ms // step * step  # a broker of another precision may have made it
        rolled_ms = rolled_slot(slot_ms, timer.stored_ms, self._window_slots, step)
        if rolled_ms is not None:
            kind, slot_ms = kind | KIND_ROLL, rolled_ms
        if slot_ms < self.next_ms and is_slave:
            return
        slot_ms = max(slot_ms, self.next_ms + (step if is_in_delivery else 0))
        if slot_ms - self.next_ms >= SLOTS * step:
            # after days without deliveries: it would overwrite a slot that waits, in the file
            kind, slot_ms = kind | KIND_ROLL, self.next_ms + (SLOTS - 1) * step
        slot = self._wheel.slots.get(slot_ms, _GONE)
        at = self.log.append(slot.last, kind, now_ms // step * step, slot_ms, timer.message)
        first = at if slot.first == NOWHERE else slot.first
        self._wheel.put(slot_ms, Slot(first, at, slot.timers + _weight(kind)))
        self.waiting += _weight(kind)

    @property
    def is_begun(self) -> bool:
        """Whether there is a checkpoint; before that nothing may be added."""
        return self._saved is not None

    @property
    def has_slots(self) -> bool:
        """Whether any slot has timers, or recalls."""
        return bool(self._wheel.slots)

    def first_slot(self, before_ms: int) -> int | None:
        """The first slot before a time that has timers; the empty ones until there are passed."""
        slots, step = self._wheel.slots, self.precision_ms
        if not slots:
            self.next_ms = max(self.next_ms, before_ms)
        elif before_ms - self.next_ms > len(slots) * step:
            self.next_ms = max(self.next_ms, min(before_ms, *slots))
        while self.next_ms < before_ms:
            if self.next_ms in slots:
                return self.next_ms
            self.next_ms += step
        return None

    def last_record(self, slot_ms: int) -> int:
        """The place of the newest record of a slot that has timers."""
        return self._wheel.slots[slot_ms].last

    def finish(self, slot_ms: int) -> Slot:
        """All timers of the first slot were delivered; returns what it was, for `restore`."""
        assert slot_ms == self.next_ms, "slots are delivered in their order"
        slot = self._wheel.slots.pop(slot_ms)
        self.waiting -= slot.timers
        self.next_ms = slot_ms + self.precision_ms
        return slot

    def pass_over(self, next_ms: int) -> None:
        """Drop the slots before a time: a master has delivered them."""
        for slot_ms in [slot_ms for slot_ms in self._wheel.slots if slot_ms < next_ms]:
            self.waiting -= self._wheel.slots.pop(slot_ms).timers
        self.next_ms = max(self.next_ms, next_ms)

    def begin_at(self, next_ms: int) -> None:
        """Let the first slot be one that is past: a slave begins where its master is."""
        assert not self.is_begun, "what was delivered would be delivered again"
        self.next_ms = next_ms // self.precision_ms * self.precision_ms

    def progress(self, scan_from: int) -> TimerProgress:
        """How far the timers are now, durable or not."""
        return TimerProgress(
            self.next_ms, self.log.end, self.queue_offset, scan_from, self.precision_ms
        )

    def restore(self, slot_ms: int, slot: Slot) -> None:
        """A finished slot is to be delivered again."""
        self._wheel.slots[slot_ms] = slot
        self.waiting += slot.timers
        self.next_ms = min(self.next_ms, slot_ms)

    def is_saved(self, idle_ms: int) -> bool:
        """Whether the checkpoint has all, but for empty slots that passed in `idle_ms`."""
        if self._saved is None:
            return False
        next_ms, queue_offset, end = self._saved
        is_same = (queue_offset, end) == (self.queue_offset, self.log.end)
        return is_same and not self._wheel.changed and self.next_ms - next_ms < idle_ms

    def snapshot(self, scan_from: int) -> TimerSnapshot:
        """What is to be written now; end it with `end_save`. OSError: nothing is.

        `scan_from`: see `TimerProgress`.
        """
        segments = self.log.pin(self._synced, self.log.end)
        changed, self._wheel.changed = self._wheel.changed, {}
        self._counter += 1
        if not self.waiting:
            self.counts.reset()
        counts = self.counts.encode()
        return TimerSnapshot(self.progress(scan_from), changed, segments, self._counter, counts)

    def write(self, snapshot: TimerSnapshot, now_ms: int) -> None:
        """Make a snapshot durable; blocks, in a thread, one at a time. OSError: the disk failed."""
        self.log.sync(snapshot.segments)
        if snapshot.changed:
            self._wheel.write(snapshot.changed)
        self.counts.write(snapshot.counts)
        self._checkpoint.write(snapshot.progress, now_ms, snapshot.counter)

    def end_save(self, snapshot: TimerSnapshot, *, is_written: bool, log_first: int) -> None:
        """A snapshot was written, or will not be. `log_first`: where the commit log begins."""
        for segment in snapshot.segments:
            segment.unpin()
        if not is_written:
            self._wheel.changed = {**snapshot.changed, **self._wheel.changed}
            return
        progress = snapshot.progress
        self._synced = progress.log_end
        self._saved = (progress.next_ms, progress.queue_offset, progress.log_end)
        self.log.delete_before(log_first)

    def close(self) -> None:
        """Close the files; nothing is written."""
        self.log.close()


_HOW_TO_START_ANEW = (
    "move timerwheel, timerlog and config/timercheck out of it: then every timer message that the "
    "log still holds is delivered, also those that were delivered before"
)


def _weight(kind: int) -> int:
    return -1 if kind & KIND_RECALL else 1
