"""Runs scenarios from seeds on a simulated loop, one after the other, and adds up their counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from cometmq.broker.replication.replica_quorum import SlaveRange
from cometmq.errors import CometError
from cometmq.testing.sim_loop import SimLoop

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine

    from cometmq.broker.replication.replication_server import ReplicationServer

L = TypeVar("L", bound=SimLoop)


def run_seed(
    seed: int,
    new_loop: type[L],
    scenario: Callable[[int, L], Coroutine[object, object, Counter[str]]],
) -> Counter[str]:
    """Run a seed; an error names it."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, new_loop)
        failures: list[BaseException] = []
        loop.set_exception_handler(
            lambda _loop, context: failures.append(
                context.get("exception") or RuntimeError(context["message"])
            )
        )
        try:
            counts = runner.run(scenario(seed, loop))
            if failures:
                raise failures[0]
        except (AssertionError, RuntimeError, CometError, OSError) as problem:
            raise AssertionError(f"seed {seed}: {problem!r}") from (
                failures[0] if failures else problem
            )
    return counts


def counts_what_was_sent(server: ReplicationServer) -> None:
    """A mutant of `ReplicationServer.acknowledge`: sent is had."""
    assert server._quorum is not None
    feeds = [slave.feed for slave in server.slaves]
    server._quorum.acknowledged(SlaveRange(one.first_offset, one.next_offset) for one in feeds)
