"""A stopped store of the tests' small sizes, as inspections and the commands of `store` see it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.index.index_file import IndexFileLayout
from cometmq.store.recovery.inspection import Inspection, InspectionReport
from store.conftest import small, tags_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.conftest import StoreHarness

LAYOUT = IndexFileLayout(small().max_hash_slot_num, small().max_index_num)
SIZES = ["--index-slots", str(LAYOUT.slots), "--index-entries", str(LAYOUT.entries)]
"""The options by which the commands know it."""


def tree(root: Path) -> dict[Path, str]:
    """Each file below a directory by the hash of its bytes, and each directory."""
    return {
        path: sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in root.rglob("*")
    }


def verify(harness: StoreHarness) -> InspectionReport:
    """What an inspection says, which changes nothing."""
    before = tree(harness.root)
    with Inspection(harness.root, SystemFiles(), LAYOUT, None, tags_code) as inspection:
        report = inspection.verify()
    assert tree(harness.root) == before
    return report


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change a file's bytes in place."""
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)
