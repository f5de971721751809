"""Topics that were deleted: how far into the log their messages no longer count.

The log keeps the records of a deleted topic until their files go, so whatever reads it again must
know. Kept in config/deletedTopics.json, written before a queue is removed. Ours alone.
Invariant: a record of a topic that lies below its mark is in no queue again, whatever crashes.
Java: none; there a crash can bring a deleted topic's queues back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from cometmq.store.json_file import JsonFile

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.world.ports import Files

log = logging.getLogger(__name__)


class Deletion(NamedTuple):
    """One topic: records below `end` are gone. The checkpoint of `dispatched` counts `entries`."""

    end: int
    entries: int
    dispatched: int


class Deletions:
    """The marks of one store."""

    def __init__(self, files: Files, config: Path) -> None:
        self._file = JsonFile(config / "deletedTopics.json", files)
        self._marks: dict[str, Deletion] = {}

    def load(self, log_first: int) -> None:
        """Read the marks that still matter; StoreCorrupt when the file cannot be read."""
        found = self._file.load()
        table = found.get("deletedTopics") if isinstance(found, dict) else None
        for topic, fields in (table or {}).items():
            mark = Deletion(*(int(fields[name]) for name in Deletion._fields))
            if mark.end > log_first:
                self._marks[topic] = mark

    def note(self, topic: str, mark: Deletion) -> None:
        """Keep a mark, durably unless the disk refuses: then a crash may bring the topic back."""
        self._marks[topic] = mark
        table = {name: each._asdict() for name, each in self._marks.items()}
        try:
            self._file.save({"deletedTopics": table})
        except OSError as problem:
            log.warning("the deletion of %s is not kept over a crash: %s", topic, problem)

    def end_of(self, topic: str) -> int:
        """Records of the topic below this byte are gone."""
        mark = self._marks.get(topic)
        return mark.end if mark else 0

    def uncounted(self, dispatched: int) -> int:
        """Entries that this checkpoint counts and that have been deleted since."""
        return sum([m.entries for m in self._marks.values() if m.dispatched == dispatched])
