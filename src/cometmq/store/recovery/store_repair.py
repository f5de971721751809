"""Makes a damaged store one that starts: gives up what is lost, and has the rest built anew.

Damage between whole records becomes a record that no queue has (topic `LOST`, as a transaction
rolled back), a missing file one that is skipped, so that RocketMQ reads over them too. Then the
checkpoint goes, and the next start reads the whole log and builds all queues anew; so does the key
index. Refuses to judge: `inspection.py` has said what is lost. Java: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.store.index.index_file import is_index_file
from cometmq.store.queues.queue_checksums import NAME as CHECKSUMS
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.runtime.clock_and_file_protocols import Files
    from cometmq.store.log.mapped_file_queue import MappedFileQueue
    from cometmq.store.recovery.log_walk import LostBytes
    from cometmq.store.recovery.store_directory import StoreDirectory

_TOPIC = "LOST"
_HOST = bytes(8)


class StoreRepair:
    """One repair of one stopped store, whose lock the caller holds."""

    def __init__(self, files: Files, directory: StoreDirectory, log_files: MappedFileQueue) -> None:
        self._files = files
        self._directory = directory
        self._log_files = log_files

    def run(self, lost: Iterable[LostBytes]) -> None:
        """Give up these parts of the log, and have everything else built anew at the next start.

        Broken off, it is run again.
        """
        directory = self._directory
        for path in (directory.checkpoint, directory.root / CHECKSUMS):
            self._files.delete(path)
        self._files.write(directory.abort, b"repair\n")
        self._files.sync_dir(directory.root)
        for name in filter(is_index_file, self._files.names(directory.index)):
            self._files.delete(directory.index / name)
        for each in lost:
            self._give_up(each)

    def _give_up(self, lost: LostBytes) -> None:
        assert lost.start < lost.end, "nothing is lost there"
        file_bytes, at = self._log_files.file_bytes, lost.start
        while at < lost.end:
            base = at - at % file_bytes
            end = min(base + file_bytes, lost.end)
            if end == base + file_bytes:
                raw = stored.BLANK.pack(end - at, stored.MAGIC_BLANK)
            else:
                raw = _lost_record(at, end - at, lost.store_ms)
            path = self._log_files.path_of(base)
            file = self._files.open(path, file_bytes)
            try:
                file.write(at - base, raw)
                file.sync()
            finally:
                file.close()
            at = end
        assert at == lost.end, "a part that was lost is still there, or more was given up"
        self._files.sync_dir(self._log_files.directory)


def _lost_record(at: int, size: int, store_ms: int) -> bytes:
    """A record of this size that stands in no queue."""
    room = size - stored.FIXED_BYTES
    with_crc = room >= len(_TOPIC) + stored.CRC_BYTES
    topic = _TOPIC[:room]
    body = bytes(room - len(topic) - (stored.CRC_BYTES if with_crc else 0))
    flag = sysflag.TRANSACTION_ROLLBACK
    raw = stored.encode(
        topic, 0, 0, 0, at, flag, store_ms, _HOST, store_ms, _HOST, 0, 0, body, b"", with_crc
    )
    assert len(raw) == size, "a lost record fills the place of those that were there"
    return raw
