"""The memory of large blocks is used again, and not fetched from the system for each of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from cometmq.runtime.freed_memory import _CHOSEN_BY_USER

SCRIPT = """
import json, resource
from cometmq.runtime.freed_memory import keep_freed_memory

def faults(bodies):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(bodies):
        parts = [bytes(256 << 10) for _ in range(60)]
        body = b"".join(parts)
        del parts, body
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults(5)
is_kept = keep_freed_memory()
faults(1)
print(json.dumps([is_kept, before, faults(5)]))
"""


def measured(**more: str) -> list[int]:
    known = {name: text for name, text in os.environ.items() if name not in _CHOSEN_BY_USER}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=known | more,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no such bound"
)
def test_large_blocks_come_from_memory_that_was_freed() -> None:
    is_kept, before, after = measured()
    assert is_kept
    assert before > 5 * 1_000, "pages of 4 KiB: 15 MiB have 3,840"
    assert after < before / 20


def test_what_the_user_has_chosen_for_the_c_library_stays() -> None:
    assert not measured(MALLOC_TRIM_THRESHOLD_="131072")[0]
