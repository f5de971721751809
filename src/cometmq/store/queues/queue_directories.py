"""Where the files of each consume queue lie: consumequeue/<topic>/<queue id>/.

Knows the layout of these directories; refuses to know what their files hold.
Java: ConsumeQueueStore.load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files


class QueueDirectory(NamedTuple):
    """The directory of one queue, which may be empty."""

    topic: str
    queue_id: int
    path: Path


def queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    """The directory of a queue; `root` is consumequeue/."""
    return root / topic / str(queue_id)


def queue_directories(files: Files, root: Path) -> Iterator[QueueDirectory]:
    """Those of all queues, by topic; directories whose name is no queue id are left out."""
    for topic in files.names(root):
        for name in files.names(root / topic):
            if name.isdecimal() and str(int(name)) == name:
                yield QueueDirectory(topic, int(name), root / topic / name)
