"""A master and a slave whose link, disks and processes fail, each from a seed.

Bytes arrive late, in order; the link stalls, heals and breaks; both crash, or lose power. Checked
at each step: the slave's log is the master's, what was answered OK is at the slave and survives
what its disk promises, and every send is answered once, in time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from broker.replication.replica_pair import ReplicaPair
from broker.replication.seeded_runs import run_seed
from cometmq.store.message_store import PutStatus
from cometmq.testing.sim_loop import SimLoop, SimTransport

if TYPE_CHECKING:
    from collections.abc import Callable

DELAYS_S = (0.0, 0.0, 0.000_5, 0.02, 0.4)
TIMEOUT_S = 3.0
IN_TIME_S = TIMEOUT_S + 0.1


class FailingLoop(SimLoop):
    """Its connections are slow, and stall or break where the scenario says so."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = Random(0)
        self._stalled: list[Callable[[], None]] | None = None
        self._transports: list[SimTransport] = []

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        while self._stalled is not None:
            await asyncio.sleep(0.1)
        ours, protocol = await super().create_connection(*args, **more)
        for transport in (ours, ours.other):
            transport._pump_soon = self._late(transport)  # type: ignore[method-assign]
            self._transports.append(transport)
        return ours, protocol

    def _late(self, transport: SimTransport) -> Callable[[], None]:
        def pump_soon() -> None:
            if not transport._is_pumping:
                transport._is_pumping = True
                self._deliver(transport._pump)

        return pump_soon

    def _deliver(self, pump: Callable[[], None]) -> None:
        if self._stalled is not None:
            self._stalled.append(pump)
        else:
            self.call_later(self.rng.choice(DELAYS_S), pump)

    def stall(self) -> None:
        """Let nothing through until `heal`."""
        self._stalled = [] if self._stalled is None else self._stalled

    def heal(self) -> None:
        """Let everything through that was held back."""
        stalled, self._stalled = self._stalled or [], None
        for pump in stalled:
            self._deliver(pump)

    def cut(self) -> None:
        """Break all connections; what was on its way is lost."""
        transports, self._transports = self._transports, []
        for transport in transports:
            transport._inbox.clear()
            transport.abort()


class Scenario:
    """One seed."""

    def __init__(self, seed: int, loop: FailingLoop) -> None:
        self.rng = loop.rng = Random(seed)
        self.loop = loop
        self.flush = self.rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        self.slave_flush = self.rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        self.pair = ReplicaPair(seed, flush=self.flush, slave_flush=self.slave_flush)
        self.counts: Counter[str] = Counter()
        self.ok: list[bytes] = []
        """What was answered OK since the slave's disk last lost anything."""
        self.unanswered: set[asyncio.Future[PutStatus]] = set()
        self.lost_s = -1.0
        """When the slave's disk lost something last."""
        self.is_master_up = False
        self.number = 0

    async def run(self) -> Counter[str]:
        pair = self.pair
        await pair.start()
        self.is_master_up = True
        for _ in range(self.rng.randint(8, 20)):
            await self.step()
            self.compare()
        self.loop.heal()
        if not self.is_master_up:
            await pair.start_master()
        await self.send()
        await pair.caught_up()
        self.compare()
        assert (
            pair.slave.log
            == pair.master.log[pair.slave.store.min_phy_offset - pair.master.store.min_phy_offset :]
        )
        assert await self.send() is PutStatus.PUT_OK
        await asyncio.sleep(IN_TIME_S)
        assert not self.unanswered, "a send was never answered"
        await pair.stop()
        return self.counts

    async def step(self) -> None:
        what = self.rng.choice(
            (*("send",) * 6, *("wait",) * 4, "stall", "heal", "cut", "slave", "slave", "master")
        )
        self.counts[what] += 1
        if what == "send":
            for _ in range(self.rng.randint(1, 4)):
                if self.is_master_up:
                    self.send()
            await asyncio.sleep(0)
        elif what == "wait":
            await asyncio.sleep(self.rng.choice((0.000_1, 0.01, 0.5, 7, 25)))
        elif what == "slave":
            await self.crash_slave()
        elif what == "master":
            await self.crash_master()
        else:
            getattr(self.loop, what)()

    def send(self) -> asyncio.Future[PutStatus]:
        self.number += 1
        body = b"<%d>" % self.number + b"x" * self.rng.choice((0, 5, 90, 700, 2_500))
        sent_s, answer = self.loop.time(), self.pair.put(body)
        self.unanswered.add(answer)
        answer.add_done_callback(lambda done: self.answered(body, sent_s, done))
        return answer

    def answered(self, body: bytes, sent_s: float, done: asyncio.Future[PutStatus]) -> None:
        if done not in self.unanswered:
            return  # its master has crashed since
        self.unanswered.remove(done)
        status = done.result()
        self.counts[status.name] += 1
        assert self.loop.time() - sent_s <= IN_TIME_S, "an answer came too late"
        assert status in (PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT), status
        if status is PutStatus.PUT_OK and sent_s > self.lost_s:
            assert body in self.pair.slave.log, f"{body[:20]!r} is answered and not at the slave"
            self.ok.append(body)

    def compare(self) -> None:
        """The slave has the master's bytes, from its first one on."""
        slave, master = self.pair.slave, self.pair.master
        first, begin = slave.store.min_phy_offset, master.store.min_phy_offset
        if slave.log and self.is_master_up:
            theirs = master.log[first - begin :]
            assert theirs[: len(slave.log)] == slave.log or slave.log[: len(theirs)] == theirs

    async def crash_slave(self) -> None:
        power_cut = self.rng.random() < 0.5
        await self.pair.stop_slave()
        await self.pair.slave.crash(power_cut=power_cut)
        if power_cut and self.slave_flush == "ASYNC_FLUSH":
            self.ok.clear()  # its disk promised nothing
            self.lost_s = self.loop.time()
        log = self.pair.slave.log
        lost = [body for body in self.ok if body not in log]
        assert not lost, f"{lost[0][:20]!r} was answered and is lost at the slave"
        await self.pair.start_slave()

    async def crash_master(self) -> None:
        if self.is_master_up:
            self.is_master_up = False
            self.unanswered.clear()
            await self.pair.server.stop()
            self.pair.quorum.close()
            self.loop.cut()
            await self.pair.master.crash(power_cut=self.flush == "SYNC_FLUSH")
        else:
            await self.pair.start_master()
            self.is_master_up = True


async def _scenario(seed: int, loop: FailingLoop) -> Counter[str]:
    return await Scenario(seed, loop).run()


def run_seeds(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        total += run_seed(seed, FailingLoop, _scenario)
    return total
