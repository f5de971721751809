"""Has the C library keep the memory of large blocks that were freed, for those that come.

Else it gives each back to the system, which fills the next one with zeros page by page: 0.6 ms of
the loop a MiB, 30 times what copying it takes. Measured: a request of 15 MiB held up all others for
22 ms, and now for 5.
Known only for glibc (mallopt(3)); elsewhere nothing is changed.
Java: none; its heap keeps what was freed.
"""

from __future__ import annotations

import ctypes
import os

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Most freed memory that a process keeps, for each thread that allocates."""
BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""Larger blocks are given back at once; glibc takes no larger bound."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Change it for this process; False where the user has chosen, or the library is another."""
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - says that it is glibc
    except (AttributeError, OSError, TypeError):
        return False
    return bool(
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
        and library.mallopt(_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
    )
