"""A settings file that is changed while its role runs: replaced whole, the old one kept as .bak.

Refuses to know what is in it. A crash leaves the old text or the new one.
Java: MixAll.string2File.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.runtime.clock_and_file_protocols import Files


class TextFile:
    """One file of text in UTF-8."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def read(self) -> str:
        """Return the text; empty where there is no file. Raises OSError.

        Bytes that are no UTF-8 become lone surrogates, which `save` writes as they were.
        """
        return (self._files.read(self.path) or b"").decode("utf-8", "surrogateescape")

    def save(self, text: str) -> None:
        """Replace the text, durably. Raises OSError."""
        files, path = self._files, self.path
        fresh, spare = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".bak")
        before, stat = files.read(path), files.stat(path)
        # a file with secrets stays its owner's alone, and so does the former one
        write = files.write_private if stat is not None and stat.is_private else files.write
        if before is not None:
            write(spare, before)
        write(fresh, text.encode("utf-8", "surrogateescape"))
        files.rename(fresh, path)
        files.sync_dir(path.parent)
