"""A name server and a broker in memory, and tests that run in virtual time.

No socket, no disk, no thread and no waiting: time jumps to the next thing that happens, so hours of
retries and delays take milliseconds, and the same seed gives the same run. The broker and the
asyncio clients are the real ones; blocking clients need `LocalCluster`.
"""

from __future__ import annotations

import asyncio
import functools
import random
from typing import TYPE_CHECKING, ParamSpec

from cometmq.testing.cluster import InProcessCluster
from cometmq.testing.sim_files import SimFiles, SimWorker
from cometmq.testing.sim_loop import LoopClock, SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

P = ParamSpec("P")

_SMALL_FILES = {
    "commit_log_file_bytes": 16 << 20,
    "max_hash_slot_num": 5_000,
    "max_index_num": 20_000,
}
"""A log file of 16 MiB holds the largest message; index files of 400 KB."""


class MemoryCluster(InProcessCluster):
    """`async with MemoryCluster() as cluster`, in a test of `in_virtual_time`.

    Its defaults are those of `broker`, with small files. `cluster.files` is the disk in memory;
    give it to another cluster to start a broker on what this one has left.
    """

    def __init__(self, *, seed: int = 0, files: SimFiles | None = None, **settings: object) -> None:
        rng = random.Random(seed)
        self.files = files or SimFiles(rng, LoopClock())
        super().__init__(
            "/store",
            clock=self.files.clock,
            files=self.files,
            worker=lambda _name: SimWorker(rng),
            **{**_SMALL_FILES, **settings},
        )

    async def start(self) -> None:
        """Start both. Raises RuntimeError on a loop of real time."""
        if not isinstance(asyncio.get_running_loop(), SimLoop):
            raise RuntimeError(
                "a MemoryCluster has no sockets and needs a loop in virtual time: decorate the "
                "test with cometmq.testing.in_virtual_time, or use InProcessCluster"
            )
        await super().start()


def in_virtual_time(
    *, seed: int = 0, limit_s: float = 30 * 86_400.0
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Decorate an async test, so that it runs in virtual time as a plain function.

        @in_virtual_time(seed=7)
        async def test_a_payment_is_tried_again_for_an_hour():
            async with MemoryCluster() as cluster: ...

    `asyncio.sleep(3600)` takes no time there, and `random` begins with `seed`. Plain handlers run
    on the loop itself: what really waits in them (`time.sleep`, a socket) holds everything. Raises
    TimeoutError after `limit_s` virtual seconds, RuntimeError where nothing could wake the test.
    """

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(limit_s):
                    await test(*args, **kwargs)

            state = random.getstate()
            random.seed(seed)
            try:
                with asyncio.Runner(loop_factory=SimLoop) as runner:
                    runner.run(bounded())
            finally:
                random.setstate(state)

        return run

    return decorate
