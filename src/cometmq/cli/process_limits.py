"""What the system allows this process: open files and memory maps, beside what its roles may need.

Owns the sentences. Refuses to stop a start: a broker with few clients and queues needs little.
Java: the JVM raises its limit of open files by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES_BESIDE_CONNECTIONS = 1024
"""Open files for the store and for connections to others."""
_MAPS = Path("/proc/self/maps")
_MAPS_MAX = Path("/proc/sys/vm/max_map_count")


def raise_open_files() -> int:
    """Raise the limit of open files as far as this user may; return what it is now."""
    import resource  # not there on Windows, where nothing is served

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
        return hard
    return soft


def problems(connections_max: int, files_max: int) -> Iterator[str]:
    """Each limit that a role might reach, in a sentence. Call it when the store is open."""
    wanted = connections_max + FILES_BESIDE_CONNECTIONS
    if 0 <= files_max < wanted:
        yield (
            f"this process may open {files_max} files, and {connections_max} connections "
            f"(connectionsMax) need about {wanted}: raise `ulimit -n` (systemd: LimitNOFILE)"
        )
    if (found := _maps()) is not None:
        used, most = found
        if used * 2 > most:
            yield (
                f"the store has {used} memory maps of the {most} that vm.max_map_count allows: "
                f"run sysctl -w vm.max_map_count={max(most * 4, used * 4)}"
            )


def _maps() -> tuple[int, int] | None:
    """How many maps this process has, and how many it may have; None where nobody says it."""
    try:
        with _MAPS.open("rb") as lines:
            return sum(1 for _ in lines), int(_MAPS_MAX.read_text())
    except (OSError, ValueError):
        return None
