"""Topics that were deleted: how far into the log their messages no longer count.

The log keeps the records of a deleted topic until their files are deleted, so a replay must skip
them. The marks are in config/deletedTopics.json, written before a queue is removed. A deletion has
`is_begun` until the topic's settings are gone too; after a crash it is completed. RocketMQ ignores
the file.
Invariant: a record below its topic's mark gets no queue entry, whatever crashes.
Java: none; there a crash can bring a deleted topic's queues back.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ProtocolError
from cometmq.store.json_file import JsonFile
from cometmq.wire.bodies import json_fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

log = logging.getLogger(__name__)


class DeletedTopic(NamedTuple):
    """One topic: records below `end` are gone.

    A checkpoint up to `dispatched` with `counted` entries in all counts `entries` of this topic;
    one with fewer was written after the deletion.
    """

    end: int
    entries: int
    dispatched: int
    counted: int = 0
    is_begun: int = 0
    """1 while the topic may still be known elsewhere."""


class DeletedTopics:
    """The marks of one store."""

    def __init__(self, files: Files, config: Path) -> None:
        self._file = JsonFile(config / "deletedTopics.json", files)
        self._marks: dict[str, DeletedTopic] = {}
        self.is_stale = False
        """Whether the last write failed, so that the file must be rewritten."""

    def load(self, log_first: int) -> None:
        """Read the marks that still matter; StoreCorrupt when the file cannot be read."""
        found = self._file.load("deletedTopics", _stored_marks) or {}
        for topic, mark in found.items():
            if mark.end > log_first or mark.is_begun:
                self._marks[topic] = mark

    def begun(self) -> list[str]:
        """The topics whose deletion a crash cut short, once the marks are loaded."""
        return [topic for topic, mark in self._marks.items() if mark.is_begun]

    def set(self, topic: str, mark: DeletedTopic | None) -> DeletedTopic | None:
        """Keep a mark in memory, or forget it; the former one. The caller writes the file."""
        former = self._marks.pop(topic, None)
        if mark is not None:
            assert mark.end >= 0
            assert mark.entries >= 0, "a topic has a negative number of entries"
            self._marks[topic] = mark
        return former

    def note(self, topic: str, mark: DeletedTopic) -> None:
        """Keep a mark, durably unless the disk refuses: then a crash may bring the topic back."""
        self.set(topic, mark)
        try:
            self.writing()()
        except OSError as problem:
            self.is_stale = True
            log.warning("the deletion of %s is not kept over a crash: %s", topic, problem)

    def writing(self) -> Callable[[], None]:
        """What writes the marks as they are now; in any thread, one after the other."""
        table = {name: each._asdict() for name, each in self._marks.items()}
        return partial(self._file.save, {"deletedTopics": table})

    def cut(self, log_end: int) -> None:
        """Have no mark reach beyond the end of the log: what comes there next was not deleted.

        A power cut may have taken what lay there. `is_stale` says whether to write the marks.
        """
        for topic, mark in self._marks.items():
            if mark.end > log_end:
                self._marks[topic] = mark._replace(end=log_end)
                self.is_stale = True

    def end_of(self, topic: str) -> int:
        """Records of the topic below this byte are gone."""
        mark = self._marks.get(topic)
        return mark.end if mark else 0

    def uncounted(self, dispatched: int, counted: int) -> int:
        """Entries that this checkpoint counts and that have been deleted since."""
        return sum(
            [
                mark.entries
                for mark in self._marks.values()
                if (mark.dispatched, mark.counted) == (dispatched, counted)
            ]
        )


def _stored_marks(obj: json_fields.Json) -> dict[str, DeletedTopic]:
    return json_fields.table(obj, "deletedTopics", _stored_mark)


def _stored_mark(value: object) -> DeletedTopic:
    fields = json_fields.object_of(value, "a deleted topic")
    found = DeletedTopic(*(json_fields.number(fields, name) for name in DeletedTopic._fields))
    if min(found.end, found.entries) < 0:
        raise ProtocolError("a deleted topic has a number below 0")
    return found
