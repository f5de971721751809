"""Telling the queues of Apache's light topics from those of topics that are only named like them.

A light topic (`%LMQ%...`) has no records of its own: its queue names records of other topics, to
which Apache's broker adds it when they are sent. Nothing of it can be built anew from the log here,
and no request of ours serves it, so a store leaves such queues alone. Changes nothing.
Java: LiteLifecycleManager, MultiDispatchUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.model.topic import is_light_topic
from cometmq.store.queues.raw_entries import without_empty_end
from cometmq.wire.records import log_record as stored
from cometmq.wire.records.consume_queue_entry import SIZE, iterate

if TYPE_CHECKING:
    from cometmq.store.log.mapped_file_queue import MappedFileQueue

_LOOKED_AT = 64
"""Entries, from the newest on, of which one must name a whole record."""


def is_light_queue(topic: str, queue_files: MappedFileQueue, log_files: MappedFileQueue) -> bool:
    """Whether a queue's newest entry that names a whole record names one of another topic."""
    if not is_light_topic(topic):
        return False
    for base in reversed(queue_files.bases):
        raw = without_empty_end(queue_files.read(base, queue_files.file_bytes))
        entries = list(iterate(raw[-_LOOKED_AT * SIZE :]))
        for place, size, _ in reversed(entries):
            if not (log_files.first <= place < log_files.end and 0 < size <= log_files.file_bytes):
                continue
            try:
                return stored.decode(log_files.read(place, size)).topic != topic
            except ProtocolError:
                continue
    return False
