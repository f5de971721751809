"""The committed offset of each group in each queue.

Owns the committed offsets, written to config/consumerOffset.json every 5 s and at the stop, and, in
memory only, the pulled offsets and the pending resets. The last commit wins, even a lower one.
A large table is encoded in time slices, and the less often the longer that takes.
Invariant: while a reset is pending, commits of that queue are ignored: the consumer has not fetched
its new offset yet. Java: ConsumerOffsetManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.groups.large_table_encoding import table_pieces
from cometmq.model.topic import DataVersion, is_light_topic
from cometmq.runtime.time_slices import TimeSlices
from cometmq.wire.bodies.offset import stored_offsets_of
from cometmq.wire.bodies.topic import version_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from cometmq.broker.groups.large_table_encoding import Table
    from cometmq.store.json_file import JsonFile
    from cometmq.wire.bodies.offset import StoredOffsets

log = logging.getLogger(__name__)

NO_OFFSET = -1
"""Returned where a group has no offset."""

VERSION_STEP = 500
"""The data version moves once in so many commits."""

_NAMED_MAX = 20
"""Groups and queues that one warning each names at a start."""

ENTRIES_MAX = 1_000_000
"""Most pairs of a group and a queue, and most that pulls are noted of; commits of further ones are
ignored, which is logged once."""

_REST = 10
"""Times the encoding of the table, in which it is not encoded again."""


class ConsumerOffsets:
    """The offsets of all groups. Belongs to the broker's loop."""

    def __init__(
        self,
        file: JsonFile,
        now_ms: Callable[[], int],
        time_slices: TimeSlices | None = None,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        """`time_slices` are shared with others that encode large tables; None: with nobody."""
        self._time_slices = time_slices or TimeSlices()
        self._entries_max = entries_max
        self._rest_until = 0.0
        self._topics: dict[str, dict[str, None]] = {}
        """The topics of each group of which there is anything; names that hold no @."""
        self._groups: dict[str, dict[str, None]] = {}
        self._has_refused = False
        self._pulled_entries = 0
        self._file = file
        self._now_ms = now_ms
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._commits = 0
        self._is_dirty = False
        self._is_unwritten = False
        """Whether the last write failed."""
        self._saving = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self._entries = 0
        self.version = DataVersion()
        self._load(file.load("offsetTable", stored_offsets_of))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember the next offset to read, unless a reset of the queue is pending."""
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return
        self._set(key, queue_id, offset)

    def committed(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset (a pending reset counts), or NO_OFFSET."""
        key = f"{topic}@{group}"
        reset = self._resets.get(key, {}).get(queue_id)
        if reset is not None:
            return reset
        return self._committed.get(key, {}).get(queue_id, NO_OFFSET)

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group's last pull ended, or its committed offset, or NO_OFFSET."""
        pulled = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return self.committed(group, topic, queue_id) if pulled is None else pulled

    def note_pull(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Remember where a pull ended."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None or queue_id not in queues:
            if self._pulled_entries >= self._entries_max:
                return  # it is shown only; the committed offset stands in for it
            self._pulled_entries += 1
            if queues is None:
                queues = self._pulled[key] = {}
                self._index(key)
        queues[queue_id] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Move the group: committed at once, fetched by the next pull of the queue.

        False: nothing is done, there are too many offsets.
        """
        key = f"{topic}@{group}"
        if not self._set(key, queue_id, offset):
            return False
        self._resets.setdefault(key, {})[queue_id] = offset
        return True

    @property
    def has_resets(self) -> bool:
        """Whether any reset is pending."""
        return bool(self._resets)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the queue is pending."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of the queue, which is then no longer pending."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def topics_of(self, group: str) -> list[str]:
        """Topics the group has committed offsets of."""
        found = self._topics.get(group, ())
        return [topic for topic in found if f"{topic}@{group}" in self._committed]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic."""
        found = self._groups.get(topic, ())
        return [group for group in found if f"{topic}@{group}" in self._committed]

    def each_pair(self) -> Iterator[tuple[str, str]]:
        """(topic, group) of all committed offsets, as they are now."""
        for key in list(self._committed):
            topic, at, group = key.partition("@")
            if at and "@" not in group:
                yield topic, group

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """All committed offsets of the group in the topic, by queue id."""
        return dict(self._committed.get(f"{topic}@{group}", {}))

    def take_over(
        self, theirs: StoredOffsets, own: Container[tuple[str, int]], keys: Iterable[str]
    ) -> None:
        """Be as far as another broker says for these keys, `topic@group`; not in queues in `own`.

        Keys that it does not have are dropped.
        """
        for key in keys:
            queues = theirs.offsets.get(key, {})
            present = self._committed.get(key, {})
            kept = {id_: each for id_, each in present.items() if (key, id_) in own}
            if not queues and not kept and key in self._committed:
                self._forget([key])
            for queue_id, offset in queues.items():
                if queue_id not in kept and present.get(queue_id) != offset:
                    self._set(key, queue_id, offset)
        self.version = theirs.version or self.version

    def keep_only(self, topics: Container[str]) -> None:
        """Drop the offsets of topics of which nothing is left: deleted just before a crash.

        Topics with a mark of their own in front (%LMQ%), which are in no table, stay.
        """
        lost = [
            f"{topic}@{group}"
            for topic, group, _ in self._items()
            if topic not in topics and not is_light_topic(topic)
        ]
        if lost:
            log.warning(
                "dropped the offsets of %d groups in topics that no longer exist", len(lost)
            )
        self._forget(lost)

    def keep_within(self, end_of: Callable[[str, int], int]) -> None:
        """Take offsets behind the end of their queue back to it: the queue lost messages.

        Else the group would never get the messages that take the lost ones' numbers.
        """
        count = 0
        for topic, group, queues in self._items():
            if is_light_topic(topic):
                continue
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset <= end:
                    continue
                queues[queue_id] = end
                count += 1
                if count <= _NAMED_MAX:
                    log.warning(
                        "%s queue %d ends at %d, and group %s had come to %d: it goes on at the "
                        "end, because the queue has lost messages",
                        topic,
                        queue_id,
                        end,
                        group,
                        offset,
                    )
        if count > _NAMED_MAX:
            log.warning(
                "groups go on at the end in %d more queues, which have lost messages",
                count - _NAMED_MAX,
            )
        self._is_dirty = self._is_dirty or count > 0

    def forget_topic(self, topic: str) -> None:
        """Drop every group's offsets of a deleted topic."""
        self._forget([f"{topic}@{group}" for group in self._groups.get(topic, ())])

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a deleted group."""
        self._forget([f"{topic}@{group}" for topic in self._topics.get(group, ())])

    def snapshot(self) -> dict[str, dict[int, int]]:
        """All committed offsets by `topic@group` and queue id; a copy."""
        return {key: dict(queues) for key, queues in self._committed.items()}

    def save(self) -> bool:
        """Write the file if anything changed since the last time; True when it was written.

        What could not be written is logged, and tried again with the next call.
        """
        if not self._is_dirty:
            return False
        try:
            self._file.write(self.encode(as_file=True))
        except OSError as error:
            self._failed(error)
        else:
            self._is_dirty = False
        return not self._is_dirty

    async def save_in_thread(self) -> None:
        """Do as `save`, with the writing in a thread; never in two at once.

        Does nothing for ten times as long as the last encoding took.
        """
        async with self._saving:
            await self._save_in_thread()

    async def save_now(self) -> bool:
        """Have everything that is committed by now on disk; False: the disk refused."""
        async with self._saving:
            self._rest_until = 0.0
            await self._save_in_thread()
        return not self._is_unwritten

    async def _save_in_thread(self) -> None:
        time = asyncio.get_running_loop().time
        while self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])
        if self._is_dirty and time() >= self._rest_until:
            self._is_dirty = False
            began, data = time(), b""
            try:
                data = await self.encode_in_turns(as_file=True)
            finally:
                self._is_dirty = self._is_dirty or not data  # it was cancelled
            self._rest_until = time() + _REST * (time() - began)
            self._writing = asyncio.ensure_future(self._write(data))
            await asyncio.shield(self._writing)

    def encode(self, *, as_file: bool = False) -> bytes:
        """The table as it is sent, or as the file has it."""
        return "".join(self._pieces(as_file)).encode()

    async def encode_in_turns(self, *, as_file: bool = False) -> bytes:
        """Do as `encode`, in time slices. What changes meanwhile is in it, or not."""
        async with self._time_slices.lock:
            return "".join(await self._time_slices.collect(self._pieces(as_file))).encode()

    def _pieces(self, as_file: bool) -> Iterator[str]:
        """The table in the order in which RocketMQ writes it, and each value as it is then."""
        tables: dict[str, Table] = {
            "groupTopicMap": (list(self._topics), self._topics_with_offsets),
            "offsetTable": (list(self._committed), self._committed.get),
            "pullOffsetTable": (list(self._pulled), self._pulled.get),
        }
        return table_pieces({"dataVersion": version_fields(self.version)}, tables, as_file)

    def _topics_with_offsets(self, group: str) -> list[str] | None:
        return self.topics_of(group) or None

    async def written(self) -> None:
        """Wait until no thread writes the file any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self, data: bytes) -> None:
        try:
            await asyncio.to_thread(self._file.write, data)
        except OSError as error:
            self._failed(error)
        else:
            self._is_unwritten = False

    def _failed(self, error: OSError) -> None:
        self._is_dirty = self._is_unwritten = True
        log.warning("%s is not written: %s", self._file.path, error)

    def _items(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        for key, queues in self._committed.items():
            topic, at, group = key.partition("@")
            if at and "@" not in group:
                yield topic, group, queues

    def _set(self, key: str, queue_id: int, offset: int) -> bool:
        """Whether there was room for it."""
        queues = self._committed.get(key)
        if queues is None or queue_id not in queues:
            if self._entries >= self._entries_max:
                self._refuse(key)
                return False
            self._entries += 1
            if queues is None:
                queues = self._committed[key] = {}
                self._index(key)
        queues[queue_id] = offset
        self._is_dirty = True
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.version = self.version.next(self._now_ms())
        return True

    def _refuse(self, key: str) -> None:
        if not self._has_refused:
            self._has_refused = True
            log.warning(
                "%d offsets are committed, and no more are taken: %s is the first to get none; "
                "delete groups or topics that nobody uses",
                self._entries,
                key,
            )

    def _index(self, key: str) -> None:
        """Have a topic find its groups and a group its topics."""
        topic, at, group = key.partition("@")
        if at and "@" not in group:
            self._topics.setdefault(group, {})[topic] = None
            self._groups.setdefault(topic, {})[group] = None

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self._entries -= len(self._committed.pop(key, ()))
            self._pulled_entries -= len(self._pulled.pop(key, ()))
            self._resets.pop(key, None)
            self._is_dirty = True
            topic, _, group = key.partition("@")
            for table, name, other in (
                (self._topics, group, topic),
                (self._groups, topic, group),
            ):
                if name in table:
                    table[name].pop(other, None)
                    if not table[name]:
                        del table[name]
        self._has_refused = self._has_refused and self._entries >= self._entries_max

    def _load(self, stored: StoredOffsets | None) -> None:
        self.version = DataVersion(timestamp=self._now_ms())
        if stored is not None:
            self.version = stored.version or self.version
            self._committed = stored.offsets
            self._entries = sum(map(len, stored.offsets.values()))
            for key in self._committed:
                self._index(key)
        else:
            self._file.write(self.encode(as_file=True))  # from now on a missing file is a lost one
