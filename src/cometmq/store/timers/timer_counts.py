"""How many timers wait for each topic: `config/timermetrics`, and the answer to GET_TIMER_METRICS.

JSON: `dataVersion`, and `timingCount` with a count and the time of its last change by topic. The
counts are shown, never relied on: what a crash loses of them is made good once no timer waits.
Java: TimerMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire import fastjson
from cometmq.wire.bodies import json_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files


class TimerCounts:
    """The counts of one store. Belongs to its loop, but for `write`."""

    def __init__(self, files: Files, path: Path) -> None:
        """Read what was written; a file that cannot be read counts as none."""
        self._files = files
        self._path = path
        self._version, self._changed_ms = 0, 0
        self._table: dict[str, tuple[int, int]] = {}
        if (raw := files.read(path)) is not None:
            try:
                self._table = decode_counts(raw)
            except ProtocolError:
                return

    def add(self, topic: str, by: int, now_ms: int) -> None:
        """Count timers of a topic that came, or with a negative number went."""
        count, _ = self._table.get(topic, (0, 0))
        self._table[topic] = max(0, count + by), now_ms
        self._version += 1
        self._changed_ms = now_ms

    def take_over(self, table: Mapping[str, tuple[int, int]]) -> None:
        """Have the counts of a master."""
        self._table = dict(table)

    def reset(self) -> None:
        """No timer waits: whatever was counted is over."""
        self._table = {topic: (0, changed_ms) for topic, (_, changed_ms) in self._table.items()}

    def each(self) -> list[tuple[str, int]]:
        """Each topic with the timers that wait for it, without those that have none."""
        return [(topic, count) for topic, (count, _) in self._table.items() if count]

    def encode(self) -> bytes:
        """The JSON text."""
        version = {"counter": self._version, "stateVersion": 0, "timestamp": self._changed_ms}
        counts = {
            topic: {"count": count, "timeStamp": changed_ms}
            for topic, (count, changed_ms) in self._table.items()
        }
        return fastjson.dumps({"dataVersion": version, "timingCount": counts})

    def write(self, raw: bytes) -> None:
        """Replace the file; blocks, from any thread, one at a time. OSError: the former is kept."""
        fresh = self._path.with_name(self._path.name + ".tmp")
        self._files.make_dir(self._path.parent)
        self._files.write(fresh, raw)
        self._files.rename(fresh, self._path)


def decode_counts(data: bytes) -> dict[str, tuple[int, int]]:
    """Count and time of its change by topic, of a file or an answer; raises ProtocolError."""
    return json_fields.table(json_fields.load_object(data), "timingCount", _count_of)


def _count_of(fields: Mapping[str, object]) -> tuple[int, int]:
    found = dict(fields)
    return json_fields.number(found, "count"), json_fields.number(found, "timeStamp")
