"""A message store without real files, threads or sockets, for unit tests of what uses one.

It runs the production code of the store on the simulated disk of `sim_files`: opening takes a
few milliseconds, and workers run their jobs on the test's own loop. Give the same `files` again to
open what another store left there, after `files.kill()` or `files.power_cut()`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from cometmq.broker.sends.tag_codes import TagCodes
from cometmq.rules.delay_levels import DelayLevels
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.message_store import MessageStore
from cometmq.testing.sim_files import SimClock, SimFiles, SimWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.runtime.clock_and_file_protocols import Worker

STORE_ROOT = Path("/store")
STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
"""127.0.0.1:10911, packed as it is written into records."""
SMALL_FILES = StoreSettings(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    max_hash_slot_num=1_000,
    max_index_num=4_000,
    read_threads=1,
)
"""Files of a size that memory can hold: a log file of 1 MiB, 1,000 entries of a queue."""


def memory_store(
    *,
    files: SimFiles | None = None,
    clock: SimClock | None = None,
    tags_code: Callable[[str, bytes, int], int] | None = None,
    base: StoreSettings = SMALL_FILES,
    seed: int = 0,
    worker: Callable[[str], Worker] | None = None,
    **settings: Any,
) -> MessageStore:
    """Open a store on a simulated disk; `settings` are fields of StoreSettings.

    Must be used on a running loop, like every store. Nothing flushes or cleans in the background
    before `await store.start()`. `files` and `clock`: a disk and a clock that the test controls
    (default: new ones). `tags_code`: the broker's by default, with the standard delay levels.
    `worker` makes what stands for each thread (default: a SimWorker).
    """
    rng = Random(seed)
    if files is None:
        files = SimFiles(rng, clock)
    levels = DelayLevels.parse(BrokerSettings().message_delay_level)
    return MessageStore.open(
        STORE_ROOT,
        replace(base, **settings),
        clock=clock or files.clock,
        files=files,
        tags_code=tags_code or TagCodes(levels),
        store_host=STORE_HOST,
        worker=worker or (lambda _name: SimWorker(rng)),
        ram=1 << 30,
    )
