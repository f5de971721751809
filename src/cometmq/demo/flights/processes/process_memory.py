"""The memory of this process and all its descendants, read from /proc.

Shared pages are counted once (PSS), so the sum is the real usage. Without /proc it is 0.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")


def process_tree_mib(root: int | None = None) -> float:
    """Proportional set size of a process (by default this one) and all below it, in MiB."""
    pids = [os.getpid() if root is None else root]
    children = _children()
    for pid in pids:
        pids.extend(children.get(pid, ()))
    return sum(_pss_kib(pid) for pid in pids) / 1024


def _children() -> dict[int, list[int]]:
    found = defaultdict(list)
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            parent = _parent(int(entry.name))
            if parent:
                found[parent].append(int(entry.name))
    return found


def _parent(pid: int) -> int:
    """The parent's id; 0 when the process has ended meanwhile."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def _pss_kib(pid: int) -> int:
    try:
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
