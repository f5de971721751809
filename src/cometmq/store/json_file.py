"""A small table kept as JSON: config/topics.json and the like, with its last good copy beside it.

Saving writes `.tmp`, makes it durable, renames the present file to `.bak` and `.tmp` to the file;
loading takes the file, or `.bak` when the file is missing, empty or broken. A reader that knows
only the file and its `.bak`, as Java's does, finds one of the two whole at every instant.
Java: ConfigManager.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Generic, TypeVar

from cometmq.errors import ProtocolError, StoreCorrupt
from cometmq.wire import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files

_T = TypeVar("_T")
_ENTRY_AT, _ENTRY_END = len('{\n\t"":{\n'), -len("\n\t}\n}")
"""Where the only entry of a table without a name begins and ends in its text."""


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
                value: object = fastjson.loads(raw)
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


class JsonTable(Generic[_T]):
    """A large table that is saved at every change: each entry is encoded once, while it lives.

    Measured for 10,000 groups: 170 -> 14 ms. The values must never change in place.
    """

    def __init__(self, name: str, fields: Callable[[_T], object]) -> None:
        """`name`: of the table in its file; `fields`: a value as what JSON knows."""
        self._name = name
        self._fields = fields
        self._texts: dict[str, tuple[_T, str]] = {}

    def encode(self, before: dict[str, object], table: Mapping[str, _T]) -> bytes:
        """The bytes that `JsonFile.encode` gives for `before`, not empty, and then the table."""
        texts = self._texts
        if len(texts) > len(table):
            texts = self._texts = {key: texts[key] for key in table if key in texts}
        for key, value in table.items():
            known = texts.get(key)
            if known is None or known[0] is not value:
                whole = JsonFile.encode({"": {key: self._fields(value)}}).decode()
                texts[key] = value, whole[_ENTRY_AT:_ENTRY_END]
        if not table:
            return JsonFile.encode({**before, self._name: {}})
        head = JsonFile.encode(before).decode().removesuffix("\n}")
        entries = ",\n".join([texts[key][1] for key in table])
        return f"{head},\n\t{json.dumps(self._name)}:{{\n{entries}\n\t}}\n}}".encode()
