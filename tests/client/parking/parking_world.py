"""A group that parks keys, in virtual time: members die, pause and lose their queue anywhere.

The real `QueueParking` over a parking queue in memory, whose sends may be stored twice, late, or
without an answer. A broker may be killed, and forgets what it had not saved. The world knows which
handler calls would break the order, and fails at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from cometmq.client.consumer.assigned_queue import AssignedQueue
from cometmq.client.parking.key_drains import redriven_id
from cometmq.client.parking.parking_messages import restore
from cometmq.client.parking.queue_parking import QueueParking
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.errors import RemotingTimeout
from cometmq.model.message import MessageExt, Property
from cometmq.model.parking import COPY_PROPERTY, ParkingRecord, ParkingStep
from cometmq.model.queue import MessageQueue
from cometmq.rules.failures.parked_keys import ParkedKeys, StoredFacts
from cometmq.wire.bodies.parking import CopyMark, decode_parking_record, encode_copy_mark
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.rules.failures.failure_policy import ParkBounds

QUEUE = MessageQueue("origin", "broker", 0)
PLACE = (QUEUE.topic, QUEUE.queue_id)
PARKING = MessageQueue("%PARK%group", "broker", 0)
KEYS = "abc"
OPTIONS = ProducerOptions(group="senders")
BEGAN_MS = 1_000_000


def message_of(key, number, offset, extra=()):
    raw = properties.encode({Property.SHARDING_KEY: key, **dict(extra)})
    made = MessageExt(
        "origin", 0, offset, b"%d" % number, raw, 0, 0, 0, 0, 0, bytes(8), 1, bytes(8), 0, "broker"
    )
    made.parsed = {Property.SHARDING_KEY: key, **dict(extra)}
    return made


class World:
    """What survives every member: both queues, committed offset, lock; and what was seen."""

    def __init__(self, seed: int, bounds: ParkBounds) -> None:
        self.dice = Random(seed)
        self.bounds = bounds
        self.queue: list[MessageExt] = []
        self.stored: list[tuple[ParkingRecord, StoredFacts, MessageExt]] = []
        self.truth = ParkedKeys()
        """The fold by one who reads each record when it is stored."""
        self.grown = asyncio.Event()
        self.committed = 0
        self.checkpoint = 0
        self.saved = (0, 0)
        """Both offsets as the broker has them on its disk."""
        self.broker_kills = 0
        self.owner: Member | None = None
        self.sent: dict[str, int] = defaultdict(int)
        self.bad: set[tuple[str, int]] = set()
        """Messages that fail."""
        self.finished: set[tuple[str, int]] = set()
        self.gone: set[tuple[str, int]] = set()
        """Dropped."""
        self.left: set[int] = set()
        """Offsets of messages that were parked, and are done."""
        self.calls: list[tuple[int, str, int]] = []
        self.parked_once = self.dead_letters = self.owners = 0

    @property
    def now_ms(self) -> int:
        return BEGAN_MS + int(asyncio.get_running_loop().time() * 1000)

    def produce(self) -> None:
        self.send(self.dice.choice(KEYS), is_bad=self.dice.random() < 0.15)

    def send(self, key: str, *, is_bad: bool = False) -> None:
        number = self.sent[key]
        self.sent[key] += 1
        if is_bad:
            self.bad.add((key, number))
        self.queue.append(message_of(key, number, len(self.queue)))
        self.grown.set()

    def store(self, message: MessageExt) -> int:
        """Store a record, and fold it for the truth."""
        record = decode_parking_record(message.properties["PARK_RECORD"])
        assert record is not None
        position = len(self.stored)
        facts = StoredFacts(stored_ms=self.now_ms, msg_id="id", attempts=1)
        self.stored.append((record, facts, message))
        counts = self.truth.apply(position, record, facts)
        self.parked_once += counts and record.step is ParkingStep.PARK
        if counts and record.step is ParkingStep.DONE:
            self.left.add(record.offset)
        self.grown.set()
        return position

    async def network(self, store) -> int:
        """Store by way of a network: at once, late, twice, or without an answer."""
        dice, loop = self.dice, asyncio.get_running_loop()
        await asyncio.sleep(dice.random() * 0.01)
        luck = dice.random()
        if luck < 0.1:  # given up by the sender, stored late or never
            if luck < 0.07:
                loop.call_later(dice.random() * 20, store)
            await asyncio.sleep(dice.random() * 0.05)
            if luck < 0.05:
                raise RemotingTimeout("no answer")
        place = store()
        if dice.random() < 0.05:
            raise RemotingTimeout("the answer is lost")
        await asyncio.sleep(dice.random() * 0.01)
        return place

    def begin_call(self, member: Member, key: str, number: int, offset: int) -> None:
        """Judge a call of the handler: every earlier message of its key is done."""
        known = self.finished | self.gone
        missing = [one for one in range(number) if (key, one) not in known]
        assert not missing, f"{key}{number} is handled before {missing}: {self.calls[-20:]}"
        assert (key, number) not in self.gone, f"{key}{number} is handled after it was given up"
        mine = [one for who, its, one in self.calls if who == member.number and its == key]
        assert (
            not mine or number in (mine[-1], mine[-1] + 1) or self._skips(key, mine[-1], number)
        ), f"{key}{number} after {mine} at one member"
        assert offset not in self.left, f"{key}{number} at {offset} was done when it was parked"
        self.calls.append((member.number, key, number))

    def _skips(self, key: str, last: int, number: int) -> bool:
        """Whether all between two calls were done by others, or given up."""
        return last < number

    def commit(self, member: Member, offset: int) -> None:
        if self.owner is member:
            self.committed = max(self.committed, offset)
            member.assigned.committed_offset = self.committed

    def save(self) -> None:
        """Put the offsets on the disk, as a broker does every few seconds."""
        self.saved = (self.committed, self.checkpoint)

    def kill_broker(self) -> None:
        """It goes on with the offsets that it has saved, and without locks."""
        self.broker_kills += 1
        self.committed, self.checkpoint = self.saved
        if self.owner is not None and self.dice.random() < 0.5:
            self.owner = None  # else it locks the queue again before anybody else does

    def checkpoint_at(self, end: int, keys: ParkedKeys) -> None:
        self.checkpoint = max(self.checkpoint, keys.needed_from(end))
        keys.forget_below(self.checkpoint)


class FakeLog:
    """The parking queue as one member reads it."""

    def __init__(self, world: World) -> None:
        self.world, self.group, self.queue, self.topic = world, "group", PARKING, PARKING.topic
        self.keys, self.next = ParkedKeys(), world.checkpoint
        self._read = asyncio.Event()

    @property
    def stamp_ms(self) -> int:
        return self.world.now_ms

    @property
    def interruptions(self) -> int:
        return self.world.broker_kills

    async def committed_of_group(self, queue: MessageQueue) -> int:
        assert queue == QUEUE
        return self.world.committed

    async def append(self, prepared) -> int:
        raw = prepared.properties.encode()
        copy = MessageExt(
            PARKING.topic,
            0,
            0,
            prepared.body,
            raw,
            0,
            0,
            0,
            0,
            0,
            bytes(8),
            1,
            bytes(8),
            0,
            "broker",
        )
        return await self.world.network(lambda: self.world.store(copy))

    async def wait_for(self, position: int) -> None:
        while self.next <= position:
            self._read.clear()
            await self._read.wait()

    async def follow(self) -> None:
        dice = self.world.dice
        while True:
            await asyncio.sleep(dice.random() * 0.02)
            end = min(len(self.world.stored), self.next + dice.randint(1, 8))
            for position in range(self.next, end):
                record, facts, _ = self.world.stored[position]
                self.keys.apply(position, record, facts)
            self.next = max(self.next, end)
            self._read.set()
            if dice.random() < 0.1:
                self.world.checkpoint_at(self.next, self.keys)


class Member:
    """One life of a member that owns the queue, or believes so."""

    numbers = 0

    def __init__(self, world: World) -> None:
        Member.numbers += 1
        world.owners += 1
        self.number, self.world = Member.numbers, world
        self.assigned = AssignedQueue(QUEUE, world.committed)
        self.assigned.committed_offset = world.committed
        self.log = FakeLog(world)
        self.parking = QueueParking(
            self.assigned, f"member {self.number}", self.log, world.bounds, OPTIONS,
            lambda one: one.sharding_key, self.restart, self.stop,
        )  # fmt: skip
        self.stopped = ""
        """Why the consumer was stopped."""
        self.is_over = False
        self.lanes: dict[str, deque[MessageExt]] = defaultdict(deque)
        self.busy: set[str] = set()
        self.draining: set[str] = set()
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self.log.follow()), loop.create_task(self.run())]

    def restart(self, _reason: object) -> None:
        """The queue is dropped: what runs now ends, and nothing new begins."""
        self.assigned.drop()
        if self.world.owner is self:
            self.world.owner = None

    def stop(self, reason: str) -> None:
        self.stopped = reason
        self.restart(None)

    def kill(self) -> None:
        self.restart(None)
        for task in self.tasks:
            task.cancel()

    async def run(self) -> None:
        world, dice, assigned = self.world, self.world.dice, self.assigned
        await self.parking.open()
        while not assigned.is_dropped:
            self.pull()
            for key in list(self.lanes):
                if self.lanes[key] and key not in self.busy:
                    self.spawn(self.work(key))
            for key in self.log.keys.drains(PLACE):
                if key not in self.draining:
                    self.draining.add(key)
                    self.spawn(self.drain(key))
            if not self.parking.is_owner():
                self.parking.lose()
            if dice.random() < 0.5:
                world.commit(self, assigned.window.commit_offset)
            if dice.random() < 0.05:
                await self.quietly(self.parking.reopen())
            if dice.random() < 0.1:
                await self.quietly(self.parking.check_age())
            await asyncio.sleep(dice.random() * 0.03)

    def spawn(self, work) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def quietly(self, work) -> None:
        with suppress(RemotingTimeout):
            await work

    def pull(self) -> None:
        at = self.assigned.window.next_offset
        new = self.world.queue[at : at + 5]
        if new:
            accepted = self.assigned.window.put(list(new), new[-1].queue_offset + 1)
            self.assigned.window.take(len(accepted))
            for message in accepted:
                self.lanes[message.sharding_key].append(message)

    async def work(self, key: str) -> None:
        """What the strategy by key does with the head of a lane."""
        lane, parking = self.lanes[key], self.parking
        self.busy.add(key)
        try:
            message = lane[0]
            if not parking.leading_to_handle([message]):
                batch = list(lane)[:3]
                done = 0
                with suppress(RemotingTimeout):
                    done = await parking.park_followers(batch)
                self.finish(lane, done)
                if not done:
                    await asyncio.sleep(0.05)
            elif await self.call(message) or await self.park_failed(message):
                self.finish(lane, 1)
        finally:
            self.busy.discard(key)

    async def park_failed(self, message: MessageExt) -> bool:
        if self.assigned.is_dropped or self.world.owner is not self:
            return False
        try:
            if await self.parking.park_failed(message, "bad"):
                return True
        except RemotingTimeout:
            return False
        if self.world.bounds.at_bound == "block" or self.assigned.is_dropped:
            return False
        self.world.finished.add((message.sharding_key, int(message.body)))
        self.world.dead_letters += 1
        return True

    def finish(self, lane: deque[MessageExt], count: int) -> None:
        if not self.assigned.is_dropped:
            self.assigned.window.finish([lane.popleft() for _ in range(count)])

    async def call(self, message: MessageExt) -> bool:
        """Handle a message under the lock; whether it went well."""
        world = self.world
        if world.owner is not self or self.assigned.is_dropped:
            await asyncio.sleep(0.01)
            return False
        key, number = message.sharding_key, int(message.body)
        world.begin_call(self, key, number, message.queue_offset)
        await asyncio.sleep(world.dice.random() * 0.02)
        if (key, number) in world.bad:
            return False
        world.finished.add((key, number))
        # a result under a lost lock does not count: the next owner handles it as well
        return world.owner is self

    async def drain(self, key: str) -> None:
        """What `KeyDrains` does."""
        parking = self.parking
        try:
            while not self.assigned.is_dropped:
                read_to = self.assigned.window.commit_offset
                found = self.log.keys.next_to_leave(PLACE, key, read_to)
                if found is None:
                    return
                parked, drain = found
                message = restore(self.world.stored[parked.position][2], parked, None)
                if drain.step is ParkingStep.RELEASE:
                    if self.world.owner is not self:
                        return
                    if await self.call(message):
                        await parking.note_left(parked, drain.position)
                    elif (key, int(message.body)) in self.world.bad:
                        await parking.note_stays(parked, drain.position, "bad")
                elif drain.step is ParkingStep.REDRIVE:
                    parking.being_sent.add(parked.offset)
                    try:
                        gate = await self.send_copy(message, parked)
                        await parking.note_left(parked, drain.position, gate)
                    finally:
                        parking.being_sent.discard(parked.offset)
                else:
                    self.world.finished.add((key, int(message.body)))
                    self.world.dead_letters += 1
                    await parking.note_left(parked, drain.position)
        except RemotingTimeout:
            await asyncio.sleep(0.05)
        finally:
            self.draining.discard(key)

    async def send_copy(self, message: MessageExt, parked) -> int:
        world = self.world
        mark = CopyMark("group", *PLACE, parked.order, parked.offset)
        extra = {
            COPY_PROPERTY: encode_copy_mark(mark),
            Property.UNIQ_KEY: redriven_id("id", PARKING, parked.position),
        }
        key, number = message.sharding_key, int(message.body)

        def store() -> int:
            world.queue.append(message_of(key, number, len(world.queue), extra))
            return len(world.queue) - 1

        return await world.network(store)


class Chaos:
    """Lets members come and go, and operators command, until the end; then all is repaired."""

    def __init__(self, world: World, redrives: bool, *, kills_brokers: bool = False) -> None:
        self.world, self.redrives, self.kills_brokers = world, redrives, kills_brokers
        self.members: list[Member] = []
        self.saves_at = 0.0

    def join(self) -> None:
        """A new owner; the old one, if it lives, does not know that it has lost the lock."""
        member = Member(self.world)
        self.world.owner = member
        self.members.append(member)

    def command(self, *, is_last: bool = False) -> None:
        world = self.world
        keys = list(world.truth.queues[PLACE].keys) if PLACE in world.truth.queues else []
        steps = [ParkingStep.RELEASE] * 3 + [ParkingStep.REDRIVE] * (2 if self.redrives else 0)
        for key in keys:
            step = ParkingStep.RELEASE if is_last else world.dice.choice(steps)
            head = world.truth.queues[PLACE].keys[key].head()
            if head is not None and (is_last or world.dice.random() < 0.5):
                self.record(step, key, head.offset)
        if keys and not is_last and world.dice.random() < 0.2:
            key = world.dice.choice(keys)
            messages = world.truth.queues[PLACE].keys[key].messages
            if messages and world.truth.queues[PLACE].keys[key].drain is None:
                offset = world.dice.choice(list(messages))
                stored = world.stored[messages[offset].position][2]
                world.gone.add((key, int(stored.body)))
                self.record(ParkingStep.DROP, key, offset)

    def record(self, step: ParkingStep, key: str, offset: int = -1) -> None:
        record = ParkingRecord(step=step, topic=PLACE[0], queue_id=0, key=key, offset=offset)
        if step is ParkingStep.DROP:
            self.world.left.add(offset)
        self.world.stored.append((record, StoredFacts(stored_ms=self.world.now_ms), None))
        self.world.truth.apply(len(self.world.stored) - 1, record, self.world.stored[-1][1])

    async def run(self) -> None:
        world, dice = self.world, self.world.dice
        self.join()
        for _ in range(dice.randint(5, 40)):
            await asyncio.sleep(dice.random() * 0.1)
            for _ in range(dice.randint(0, 4)):
                world.produce()
            self.check()
            luck = dice.random()
            if luck < 0.15:
                self.members.pop(dice.randrange(len(self.members))).kill()
            elif luck < 0.3:
                self.join()
            elif luck < 0.5:
                self.command()
            elif luck < 0.55:
                world.bad.discard(dice.choice(sorted(world.bad)) if world.bad else ("", 0))
            if self.kills_brokers:
                self.save_or_kill_broker()
            if world.owner is None or world.owner.assigned.is_dropped:
                self.join()
        await self.end_well()

    def save_or_kill_broker(self) -> None:
        """Save every 0.2 s or more often; die now and then."""
        now = asyncio.get_running_loop().time()
        if self.world.dice.random() < 0.1:
            self.world.kill_broker()
        elif now >= self.saves_at:
            self.world.save()
            self.saves_at = now + 0.2

    async def end_well(self) -> None:
        """Heal: nothing fails any more, and operators release until nothing is parked."""
        world = self.world
        world.bad.clear()
        for _ in range(60):
            self.check()
            if world.owner is None or world.owner.assigned.is_dropped:
                self.join()
            known = world.finished | world.gone
            everything = {(key, n) for key, count in world.sent.items() for n in range(count)}
            is_read = world.committed == len(world.queue) and everything <= known
            if is_read and not list(world.truth.messages()):
                break
            self.command(is_last=True)
            await asyncio.sleep(0.5)
        else:
            raise AssertionError(
                f"it never ends: committed {world.committed} of {len(world.queue)}, parked "
                f"{list(world.truth.messages())}"
            )
        for member in self.members:
            member.kill()

    def check(self) -> None:
        """Raise what a task of a member has raised."""
        for member in self.members:
            for task in member.tasks:
                if task.done() and not task.cancelled() and task.exception():
                    raise task.exception()
