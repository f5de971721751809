"""The committed offset of each group in each queue.

Owns the committed offsets, written to config/consumerOffset.json every 5 s and at the stop, and, in
memory only, the pulled offsets and the pending resets. The last commit wins, even a lower one.
Invariant: while a reset is pending, commits of that queue are ignored: the consumer has not fetched
its new offset yet. Java: ConsumerOffsetManager.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from cometmq.model.topic import DataVersion
from cometmq.wire.bodies.topic import version_fields, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from cometmq.store.json_file import JsonFile

log = logging.getLogger(__name__)

NO_OFFSET = -1
"""Returned where a group has no offset."""

VERSION_STEP = 500
"""The data version moves once in so many commits."""

_LIGHT_QUEUE_PREFIX = "%LMQ%"

ENTRIES_MAX = 2_000_000
"""Most pairs of a group and a queue; commits of further ones are ignored."""


class ConsumerOffsets:
    """The offsets of all groups. Belongs to the broker's loop."""

    def __init__(self, file: JsonFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._commits = 0
        self._is_dirty = False
        self._writing: asyncio.Future[None] | None = None
        self._entries = 0
        self.version = DataVersion()
        self._load(file.load())

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
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the group: committed at once, fetched by the next pull of the queue."""
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self._set(key, queue_id, offset)

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
        return [topic for topic, name, _ in self._items() if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of the topic."""
        return [group for name, group, _ in self._items() if name == topic]

    def pairs(self) -> list[tuple[str, str]]:
        """(topic, group) of all committed offsets."""
        return [(topic, group) for topic, group, _ in self._items()]

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """All committed offsets of the group in the topic, by queue id."""
        return dict(self._committed.get(f"{topic}@{group}", {}))

    def keep_only(self, topics: Container[str]) -> None:
        """Drop the offsets of topics that do not exist: deleted just before a crash.

        Topics with a mark of their own in front (%LMQ%), which are in no table, stay.
        """
        lost = [
            f"{topic}@{group}"
            for topic, group, _ in self._items()
            if topic not in topics and not topic.startswith(_LIGHT_QUEUE_PREFIX)
        ]
        if lost:
            log.warning(
                "dropped the offsets of %d groups in topics that no longer exist", len(lost)
            )
        self._forget(lost)

    def forget_topic(self, topic: str) -> None:
        """Drop every group's offsets of a deleted topic."""
        self._forget([f"{name}@{group}" for name, group, _ in self._items() if name == topic])

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a deleted group."""
        self._forget([f"{topic}@{name}" for topic, name, _ in self._items() if name == group])

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
            self._file.save(self.to_json())
        except OSError as error:
            self._failed(error)
        else:
            self._is_dirty = False
        return not self._is_dirty

    async def save_in_thread(self) -> None:
        """Do as `save`, with the writing in a thread; never in two at once."""
        while self._writing is not None and not self._writing.done():
            await asyncio.wait([self._writing])
        if self._is_dirty:
            self._is_dirty = False
            data = self._file.encode(self.to_json())
            self._writing = asyncio.ensure_future(self._write(data))
            await asyncio.shield(self._writing)

    async def written(self) -> None:
        """Wait until no thread writes the file any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def to_json(self) -> dict[str, Any]:
        """The file's content, in the order RocketMQ writes it."""
        topics: dict[str, list[str]] = {}
        for topic, group, _ in self._items():
            topics.setdefault(group, []).append(topic)
        return {
            "dataVersion": version_fields(self.version),
            "groupTopicMap": topics,
            "offsetTable": self.snapshot(),
            "pullOffsetTable": {key: dict(queues) for key, queues in self._pulled.items()},
        }

    async def _write(self, data: bytes) -> None:
        try:
            await asyncio.to_thread(self._file.write, data)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self._is_dirty = True
        log.warning("%s is not written: %s", self._file.path, error)

    def _items(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        for key, queues in self._committed.items():
            topic, at, group = key.partition("@")
            if at and "@" not in group:
                yield topic, group, queues

    def _set(self, key: str, queue_id: int, offset: int) -> None:
        queues = self._committed.get(key)
        if queues is None:
            queues = self._committed[key] = {}
        if queue_id not in queues:
            if self._entries >= ENTRIES_MAX:
                return
            self._entries += 1
        queues[queue_id] = offset
        self._is_dirty = True
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.version = self.version.next(self._now_ms())

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self._entries -= len(self._committed.pop(key, ()))
            self._pulled.pop(key, None)
            self._resets.pop(key, None)
            self._is_dirty = True

    def _load(self, value: Any) -> None:
        stored = value if isinstance(value, dict) else {}
        raw_version = stored.get("dataVersion")
        self.version = (
            version_of(raw_version) if raw_version else DataVersion(timestamp=self._now_ms())
        )
        for key, queues in (stored.get("offsetTable") or {}).items():
            self._committed[key] = {int(queue): int(offset) for queue, offset in queues.items()}
            self._entries += len(queues)
