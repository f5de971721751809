"""The store that a power cut would leave: only what the broker asked the kernel to make durable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

RECORDER = Path(__file__).with_name("durable_image")


class PowerImage:
    """Records the syncs of the brokers that a test starts, and makes stores of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Path, image: Path) -> None:
        store.mkdir()
        image.mkdir()
        self._store, self._image = store, image
        self._root = store.stat().st_ino
        monkeypatch.setenv("PYTHONPATH", str(RECORDER), prepend=":")
        monkeypatch.setenv("DURABLE_IMAGE", str(image))
        monkeypatch.setenv("DURABLE_STORE", str(store))

    def assemble(self, target: Path) -> Path:
        """Write the durable part of the store to `target`; call it when the broker is dead."""
        self._directory(self._root, self._store, target)
        return target

    def _directory(self, inode: int, path: Path, target: Path) -> None:
        target.mkdir()
        names = self._image / f"{inode}.names"
        if not names.exists():
            return
        for name, child in json.loads(names.read_text()).items():
            if (self._image / f"{child}.names").exists() or (path / name).is_dir():
                self._directory(child, path / name, target / name)
            elif (data := self._image / str(child)).exists():
                shutil.copy(data, target / name)
            else:
                (target / name).touch()  # the name is durable, not one byte of it
