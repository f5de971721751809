"""A small table kept as JSON: config/topics.json and the like, with its last good copy beside it.

Saving writes `.tmp`, makes it durable, turns the present file into `.bak` and renames; loading
takes the file, or `.bak` when the file is missing, empty or broken. A reader that knows only the
file and its `.bak`, as Java's does, finds one of the two whole at every instant.
Java: ConfigManager.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, StoreCorrupt
from cometmq.wire import java_json

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.world.ports import Files


class JsonFile:
    """One table on disk. `save` blocks for two flushes; `encode` and `write` let a thread do it."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files
        self._backup = path.with_name(path.name + ".bak")
        self._fresh = path.with_name(path.name + ".tmp")

    def load(self) -> object | None:
        """What was last saved; None when nothing ever was. StoreCorrupt: both copies are bad."""
        broken = None
        for path in (self.path, self._backup):
            raw = self._files.read(path)
            if not raw or not raw.strip():
                continue
            try:
                value: object = java_json.loads(raw)
            except ProtocolError as problem:
                broken = problem
            else:
                return value
        if broken is not None:
            raise StoreCorrupt(f"{self.path} and its .bak hold no JSON: {broken}")
        return None

    @staticmethod
    def encode(value: object) -> bytes:
        """The bytes that stand for a value: indented by tabs, as RocketMQ's are."""
        text = json.dumps(value, indent="\t", separators=(",", ":"), ensure_ascii=False)
        return text.encode()

    def write(self, data: bytes) -> None:
        """Make these bytes the file's content, durably. OSError: the former content is kept."""
        self._files.make_dir(self.path.parent)
        self._files.write(self._fresh, data)
        if self._files.stat(self.path) is not None:
            self._files.rename(self.path, self._backup)
        self._files.rename(self._fresh, self.path)
        self._files.sync_dir(self.path.parent)

    def save(self, value: object) -> None:
        """Make `value` the file's content, durably. OSError: the former content is kept."""
        self.write(self.encode(value))
