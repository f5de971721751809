"""A broker's side of a snapshot: it keeps its files, writes offsets down, and says how far it is.

Looks four times a second whether a command asks (`store/snapshots/snapshot_request.py`). Sends,
pulls and deletions of topics go on.
Invariant: as long as the command lives, nothing is deleted for its age.
Java: none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.store.snapshots.snapshot_request import SnapshotAnswer, SnapshotFiles

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.message_store import MessageStore

log = logging.getLogger(__name__)
LOOK_S = 0.25
"""Time between two looks, seconds."""


class SnapshotRequests:
    """Answers whoever copies the store of one broker. Belongs to its loop."""

    def __init__(
        self, files: Files, root: Path, store: MessageStore, offsets: ConsumerOffsets
    ) -> None:
        self._files = SnapshotFiles(files, root)
        self._root = root
        self._store = store
        self._offsets = offsets
        self._answered = ""

    async def look(self) -> None:
        """See whether somebody asks, and answer; a command that is gone is forgotten."""
        request = self._files.asked()
        is_held = request is not None and self._files.is_held()
        if is_held != self._store.keeps_old_files:
            self._store.keeps_old_files = is_held
            verb = "is taken: old files stay" if is_held else "has ended: old files may go"
            log.info("a snapshot of the store %s %s", self._root, verb)
        if request is not None and is_held and request != self._answered:
            await self._answer(request)

    async def _answer(self, request: str) -> None:
        self._answered = request
        is_saved = await self._offsets.save_now()
        problem = "" if is_saved else "consumer offsets cannot be written; see its log"
        log_end, directory = self._store.max_phy_offset, str(self._store.commit_log_directory)
        self._files.reply(SnapshotAnswer(request, log_end, directory, problem))
