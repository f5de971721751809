"""Three brokers of one name, of which slaves are promoted while links, processes and disks fail.

The stores, the copying, the epochs and the changes of role are the real ones; the name server is a
note of who became master last, and an administrator promotes by the rules of `SlavePromotion`.
Checked at each promotion and at the end: what was answered OK is in the log of the newest master,
and in the end all logs are one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, Any

from broker.replication.failing_pair import DELAYS_S, IN_TIME_S
from broker.replication.replica_pair import LOG_FILE, PORT, Node
from broker.replication.seeded_runs import run_seed
from cometmq.broker.replication.epoch_keeper import EpochKeeper, RoleChange
from cometmq.broker.replication.epoch_peers import PERIOD_S, EpochPeers
from cometmq.broker.replication.replica_quorum import ReplicaQuorum
from cometmq.broker.replication.replication_client import ReplicationClient
from cometmq.broker.replication.replication_server import ReplicationServer
from cometmq.broker.replication.role_file import RoleFile
from cometmq.broker.served_broker import apply_change
from cometmq.errors import CometError, ConnectFailed
from cometmq.model.replication import EpochStatus
from cometmq.rules.epochs import is_newer
from cometmq.settings.broker import BrokerSettings
from cometmq.store.message_store import MessageDraft, PutStatus
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.testing.memory_store import STORE_ROOT
from cometmq.testing.sim_loop import SimLoop, SimTransport

if TYPE_CHECKING:
    from collections.abc import Callable

MEMBERS = 3
FIRST = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout_ms": 3_000}
_who: ContextVar[int] = ContextVar("who", default=-1)


class PartedLoop(SimLoop):
    """Its connections are slow, and pairs of members cannot reach each other."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = Random(0)
        self.parted: set[frozenset[int]] = set()
        self._transports: list[tuple[frozenset[int], SimTransport]] = []

    def reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.parted

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        ends = frozenset((_who.get(), int(args[2]) - PORT))
        if ends in self.parted:
            await asyncio.sleep(1)
            raise ConnectionRefusedError("parted")
        ours, protocol = await super().create_connection(*args, **more)
        for transport in (ours, ours.other):
            transport._pump_soon = self._late(transport)  # type: ignore[method-assign]
            self._transports.append((ends, transport))
        return ours, protocol

    def _late(self, transport: SimTransport) -> Callable[[], None]:
        def pump_soon() -> None:
            if not transport._is_pumping:
                transport._is_pumping = True
                self.call_later(self.rng.choice(DELAYS_S), transport._pump)

        return pump_soon

    def cut(self, is_cut: Callable[[frozenset[int]], bool]) -> None:
        """Break connections; what was on its way is lost."""
        broken = [each for each in self._transports if is_cut(each[0])]
        self._transports = [each for each in self._transports if not is_cut(each[0])]
        for _, transport in broken:
            transport._inbox.clear()
            transport.abort()


class Member:
    """One broker: a store, its role on the same disk, and what follows from the role."""

    def __init__(self, group: Group, number: int, flush: str) -> None:
        self.group, self.number = group, number
        self.node = Node(group.rng, flush, LOG_FILE)
        self.settings = BrokerSettings(
            **(FIRST if not number else {**FIRST, "broker_role": "SLAVE", "broker_id": number})
        )
        self.is_up = False
        self.keeper: EpochKeeper
        self.peers: Peers
        self.client: ReplicationClient | None = None
        self.server: ReplicationServer | None = None
        self.quorum: ReplicaQuorum | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changing: asyncio.Task[None] | None = None

    @property
    def is_master(self) -> bool:
        return self.is_up and self.server is not None

    @property
    def status(self) -> EpochStatus:
        kept = self.keeper.kept
        return EpochStatus(
            self.role.broker_id, kept.epochs, kept.promised, self.node.store.max_phy_offset
        )

    async def start(self) -> None:
        """Start in the role that the disk says."""
        file, store = RoleFile(STORE_ROOT, self.node.disk), self.node.store
        self.role = role = file.kept.applied_to(self.settings)
        self.keeper = keeper = EpochKeeper(file, store, role, lambda: str(self.number))
        keeper.on_change = self._change_soon
        self.peers = peers = Peers(self)
        self.is_up = True
        token = _who.set(self.number)
        if role.is_slave:
            store.is_slave = True
            self.client = client = ReplicationClient(store, role)
            client.check_master = self._check
            client.on_need = self._follow
            keeper.on_news = client.look_again
            self._follow()
            self._tasks = [asyncio.ensure_future(client.run())]
        elif (change := await peers.newer_master()) is not None:
            _who.reset(token)
            await self._become(change)
            return
        else:
            self.quorum = ReplicaQuorum(1, role.slave_timeout_ms / 1000)
            store.durability_conditions.add(self.quorum)
            self.server = ReplicationServer(store, role, self.quorum)
            await self.server.start("m", PORT + self.number)
            self.group.last_master = self.number
            keeper.on_news = lambda: None
            self._tasks = [asyncio.ensure_future(self._look())]
        _who.reset(token)

    async def _check(self) -> str:
        master = self.group.known_master(self.number)
        await self.peers.check_master(master)
        return f"m:{PORT + int(master)}" if master else ""

    def _follow(self) -> None:
        assert self.client is not None
        master = self.group.known_master(self.number)
        self.client.follow(f"m:{PORT + int(master)}" if master else "")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            self.group.last_master = self.number
            if (change := await self.peers.newer_master()) is not None:
                self.keeper.change(change)

    async def stop(self) -> None:
        """End all that runs; the store stays as it is."""
        self.is_up = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        if self.server is not None:
            await self.server.stop()
        if self.quorum is not None:
            self.node.store.durability_conditions.remove(self.quorum)
            self.quorum.close()
        self.client = self.server = self.quorum = None

    def _change_soon(self, change: RoleChange) -> None:
        self._changing = asyncio.ensure_future(self._become(change))

    async def _become(self, change: RoleChange) -> None:
        broker_id = self.role.broker_id
        await self.stop()
        await self.node.store.stop()
        files = self.node.disk
        self.group.counts["cut" if change.cut_at >= 0 else "changed"] += 1
        stamp = str(self.group.counts.total())
        log_end = self.node.store.max_phy_offset
        directory = StoreDirectory(files, STORE_ROOT)
        apply_change(files, directory, LOG_FILE, change, broker_id, log_end, stamp)
        self.node.open()
        await self.start()

    async def role_reached(self) -> None:
        """Wait until no change of role is under way."""
        while self._changing is not None and not self._changing.done():
            await asyncio.wait([self._changing])
        if self._changing is not None:
            self._changing.result()

    async def crash(self, *, power_cut: bool) -> None:
        await self.role_reached()
        self.is_up = False
        for task in self._tasks:
            task.cancel()
        if self.server is not None:
            await self.server.stop()
        if self.quorum is not None:
            self.group.forget_unanswered(self)
            self.quorum.close()
        self._tasks = []
        self.client = self.server = self.quorum = None
        self.group.loop.cut(lambda ends: self.number in ends)
        await self.node.crash(power_cut=power_cut)


class Peers(EpochPeers):
    """The other members, asked without a frame."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._keeper, self._store = member.keeper, member.node.store
        self._address = lambda: str(member.number)

    async def _members(self) -> list[str]:
        return [str(number) for number in range(MEMBERS)]

    async def _ask(self, addr: str) -> EpochStatus | None:
        return (await self._reach(addr)).status

    async def _tell(self, addr: str, own_addr: str, number: int) -> None:
        with contextlib.suppress(CometError):
            (await self._reach(addr)).keeper.on_news()

    async def _reach(self, addr: str) -> Member:
        group = self._member.group
        await asyncio.sleep(group.rng.choice(DELAYS_S))
        other = group.members[int(addr)]
        if not other.is_up or not group.loop.reaches(self._member.number, other.number):
            raise ConnectFailed(f"{addr} is not there")
        return other


class Group:
    """One seed."""

    def __init__(self, seed: int, loop: PartedLoop) -> None:
        self.rng = loop.rng = Random(seed)
        self.loop = loop
        self.power_cuts = self.rng.random() < 0.5
        flush = "SYNC_FLUSH" if self.power_cuts else "ASYNC_FLUSH"
        self.counts: Counter[str] = Counter()
        self.last_master = 0
        self.ok: list[bytes] = []
        self.unanswered: dict[asyncio.Future[PutStatus], Member] = {}
        self.number = 0
        self.members = [Member(self, number, flush) for number in range(MEMBERS)]

    def known_master(self, asks: int) -> str:
        """Whom the name server calls the master; nobody, where that is who asks."""
        return "" if self.last_master == asks else str(self.last_master)

    async def run(self) -> Counter[str]:
        for member in self.members:
            await member.start()
        for _ in range(self.rng.randint(15, 35)):
            await self.step()
        await self.heal()
        return self.counts

    async def step(self) -> None:
        what = self.rng.choice(
            (*("send",) * 8, *("wait",) * 5, "part", "part", "meet", "crash", "start", "start",
             "promote", "promote")
        )  # fmt: skip
        self.counts[what] += 1
        await getattr(self, what)()

    async def send(self) -> None:
        for member in self.members:
            for _ in range(self.rng.randint(1, 3) if member.is_master else 0):
                self.put(member)
        await asyncio.sleep(0)

    def put(self, member: Member) -> asyncio.Future[PutStatus]:
        self.number += 1
        body = b"<%d>" % self.number + b"x" * self.rng.choice((0, 5, 90, 700))
        store = member.node.store
        answer: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        put = store.put(MessageDraft("T", self.rng.randint(0, 1), body, b"", born_ms=1))
        if put.status is PutStatus.PUT_OK:
            self.unanswered[answer] = member
            answer.add_done_callback(lambda done: self.answered(body, done))
            store.on_durable(lambda status: None if answer.done() else answer.set_result(status))
        else:
            answer.set_result(put.status)
        return answer

    def answered(self, body: bytes, done: asyncio.Future[PutStatus]) -> None:
        if self.unanswered.pop(done, None) is None:
            return  # its master has crashed since
        status = done.result()
        self.counts[status.name] += 1
        if status is PutStatus.PUT_OK:
            self.ok.append(body)

    def forget_unanswered(self, member: Member) -> None:
        self.unanswered = {at: each for at, each in self.unanswered.items() if each is not member}

    async def wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0.000_1, 0.01, 0.5, 4, 15)))

    async def part(self) -> None:
        ends = frozenset(self.rng.sample(range(MEMBERS), 2))
        self.loop.parted.add(ends)
        self.loop.cut(lambda each: each == ends)

    async def meet(self) -> None:
        self.loop.parted.clear()

    async def crash(self) -> None:
        member = self.rng.choice(self.members)
        await member.role_reached()
        if member.is_up:
            await member.crash(power_cut=self.power_cuts)

    async def start(self) -> None:
        for member in self.members:
            await member.role_reached()
            if not member.is_up:
                await member.start()
                await member.role_reached()
                return

    async def promote(self) -> None:
        """Do as `SlavePromotion`, by an administrator who reaches every broker that is up.

        All slaves must answer: with one that is silent, what only that one has may be missing.
        """
        for member in self.members:
            await member.role_reached()
        ups = [member for member in self.members if member.is_up]
        slaves = [member for member in ups if not member.is_master]
        is_forced = len(ups) > len(slaves)
        if not slaves or len(ups) < (MEMBERS if is_forced else MEMBERS - 1):
            return
        number = 1 + max(
            max(each.keeper.kept.epochs[-1].number, each.keeper.kept.promised) for each in ups
        )
        target = self.rng.choice(slaves)
        if self.began_later(target):
            return
        for other in ups:
            if other is not target:
                other.keeper.promise(number)
                other.keeper.on_news()
        mine = target.status
        for other in ups:
            theirs = other.status
            has_more = theirs.log_end > mine.log_end and not other.is_master
            if is_newer(theirs.reached, mine.reached) or (
                has_more and not is_newer(mine.reached, theirs.reached)
            ):
                return
        self.counts["promotions"] += 1
        change = RoleChange("promoted", broker_id=0, new_epoch=number)
        target.keeper.change(change)
        await target.role_reached()
        if target.is_master:
            self.look_for_answered(target)

    def began_later(self, member: Member) -> bool:
        """Whether another one has older parts of the log: an empty slave begins with the last."""
        first = member.node.store.min_phy_offset
        return any(each.node.store.min_phy_offset < first for each in self.members)

    def look_for_answered(self, master: Member) -> None:
        log = master.node.log
        lost = [body for body in self.ok if body not in log]
        assert not lost, f"{lost[0][:20]!r} was answered and the new master has it not"

    async def heal(self) -> None:
        """Everything works again: one master is left, all logs are one, and nothing is missing."""
        self.loop.parted.clear()
        for member in self.members:
            await member.role_reached()
            if not member.is_up:
                await member.start()
        await asyncio.sleep(120)
        for member in self.members:
            await member.role_reached()
        newest = max(member.keeper.kept.promised for member in self.members)
        masters = [member for member in self.members if member.is_master]
        if newest > max((each.keeper.kept.epochs[-1].number for each in masters), default=0):
            # a promotion was begun and refused: the slaves wait for it
            self.counts["promoted at last"] += 1
            best = max(self.members, key=lambda m: (m.status.reached[-1][0::2], m.status.log_end))
            if self.began_later(best):
                self.counts["nobody to promote"] += 1
                return
            best.keeper.change(RoleChange("promoted", broker_id=0, new_epoch=newest + 1))
            await asyncio.sleep(120)
            for member in self.members:
                await member.role_reached()
            masters = [member for member in self.members if member.is_master]
        assert len(masters) == 1, f"there are {len(masters)} masters"
        (master,) = masters
        assert await self.put(master) is PutStatus.PUT_OK
        await asyncio.sleep(30)
        self.look_for_answered(master)
        for member in self.members:
            if member is not master:
                start = member.node.store.min_phy_offset - master.node.store.min_phy_offset
                theirs, mine = master.node.log[max(0, start) :], member.node.log[max(0, -start) :]
                assert mine == theirs, "logs differ"
                assert member.keeper.kept.epochs == master.keeper.kept.epochs
        await asyncio.sleep(IN_TIME_S)
        assert not self.unanswered, "a send was never answered"
        for member in self.members:
            await member.stop()


async def _scenario(seed: int, loop: PartedLoop) -> Counter[str]:
    async with asyncio.timeout(7_200):
        return await Group(seed, loop).run()


def run_seeds(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        total += run_seed(seed, PartedLoop, _scenario)
    return total
