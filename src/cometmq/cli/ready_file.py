"""The file that says where a started role listens.

Written atomically when everything accepts connections, and removed at a clean stop. As long as it
exists, clients may connect.
Layout: JSON, {"namesrv": "host:port", "broker": "host:port", "store": path, "pid": n}.
"""

from __future__ import annotations

import json
from errno import ENOTDIR
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class ReadyFile:
    """One such file, or none when `path` is None."""

    def __init__(self, path: Path | None) -> None:
        """Remove the file of an earlier run; raises SettingsError when the path cannot be used."""
        self._path = path
        self._try(self._check)

    def write(self, facts: Mapping[str, object]) -> None:
        """Write the file atomically; raises SettingsError when it cannot be written."""
        self._try(lambda: self._write(json.dumps(facts) + "\n"))

    def remove(self) -> None:
        """Remove the file: nothing listens any more."""
        self._try(self._remove)

    def _check(self) -> None:
        self._remove()
        if self._path is not None and not self._path.parent.is_dir():
            raise NotADirectoryError(ENOTDIR, f"{self._path.parent} is no directory")

    def _write(self, text: str) -> None:
        if self._path is not None:
            temporary = self._path.with_name(f".{self._path.name}.tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self._path)

    def _remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            raise SettingsError(f"--ready-file {self._path}: {error.strerror or error}") from error
