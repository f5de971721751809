"""Whoever connects to the replication port with odd bytes changes nothing and stops nobody."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from broker.replication.replica_pair import PORT, ReplicaPair, run
from cometmq.broker.replication.replication_server import SLAVES_MAX
from cometmq.store.message_store import PutStatus
from cometmq.wire.replication import REPORT
from oracle_runs import record_run

if TYPE_CHECKING:
    from cometmq.testing.sim_loop import SimTransport

FRAMES, MANY, A_CONNECTION = 10_000, 1_000_000, 50


def odd_report(rng: Random, log_end: int) -> bytes:
    """Eight bytes: a report that could be one, one that cannot, or no report at all."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(8)
    near = rng.choice((0, 1, log_end // 2, log_end, 1 << 40, (1 << 63) - 1))
    return REPORT.pack(max(-(1 << 63), min((1 << 63) - 1, near + rng.choice((-1, 0, 0, 0, 1, 7)))))


async def attack(pair: ReplicaPair, frames: int, rng: Random) -> int:
    """Send so many odd frames over many connections; how many of these the master closed."""
    loop, closed, sent = asyncio.get_running_loop(), 0, 0
    while sent < frames:
        made, _ = await loop.create_connection(asyncio.Protocol, "m", PORT)
        transport = cast("SimTransport", made)
        for _ in range(rng.randint(1, A_CONNECTION)):
            frame = odd_report(rng, pair.master.store.max_phy_offset)
            transport.write(frame[: rng.choice((8, 8, 8, 3))])
            sent += 1
            if rng.random() < 0.2:
                await asyncio.sleep(0)
            if transport.is_closing() or transport.other.is_closing():
                break
        await asyncio.sleep(0.001)
        closed += transport.is_closing() or transport.other.is_closing()
        assert len(pair.server.slaves) <= SLAVES_MAX
        if rng.random() < 0.9:
            transport.abort()
    return closed


def hostile_run(frames: int) -> int:
    closed = 0

    async def scenario() -> None:
        nonlocal closed
        pair = ReplicaPair(1)
        await pair.start()
        for _ in range(20):
            assert await pair.put() is PutStatus.PUT_OK
        before = pair.master.log
        closed = await attack(pair, frames, Random(frames))
        assert pair.master.log == before
        await asyncio.sleep(60)  # the silent ones are closed
        assert len(pair.server.slaves) == 1
        await pair.caught_up()
        assert await pair.put() is PutStatus.PUT_OK
        await pair.caught_up()
        assert pair.slave.log == pair.master.log
        await pair.stop()

    run(scenario())
    return closed


def test_odd_reports_change_nothing_and_stop_no_slave() -> None:
    assert hostile_run(FRAMES) > 100


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_million_odd_reports_change_nothing_and_stop_no_slave() -> None:
    closed = hostile_run(MANY)
    replay = "pytest -m slow tests/broker/replication/test_hostile_slaves.py"
    record_run("hostile-slaves", replay=replay, frames=MANY, connections_closed=closed)
