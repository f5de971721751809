"""The order of a key over every way to send it at once, on connections that break all the time."""

import asyncio
import random
from collections import defaultdict

import pytest

from client.scripted_broker import TOPIC, ScriptedBroker
from cometmq import AsyncProducer, Message, Producer, RemotingTimeout
from cometmq.client.producer.key_locks import KeyLocks
from cometmq.wire.codes import RequestCode
from cometmq.wire.records import message_batch, properties

SEND, SEND_BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
KEYS = "abcd"


class Breaking:
    """Stores what comes, and breaks the connections instead of answering now and then."""

    def __init__(self, seed):
        self.stored = defaultdict(list)
        self.luck, self.share = random.Random(seed), 0.25
        self.broker = ScriptedBroker()
        self.broker.answers[SEND] = self.one
        self.broker.answers[SEND_BATCH] = self.many

    def one(self, command):
        pairs = properties.decode(command.ext["i"].encode())
        return self._store(command, [(pairs.get("__SHARDINGKEY"), command.body)])

    def many(self, command):
        items = message_batch.decode(command.body)
        pairs = [properties.decode(item.properties) for item in items]
        named = [one.get("__SHARDINGKEY") for one in pairs]
        return self._store(command, zip(named, [item.body for item in items], strict=True))

    def _store(self, command, messages):
        is_before = self.luck.random() < 0.5
        breaks = self.luck.random() < self.share
        if not (breaks and is_before):
            for key, body in messages:
                self.stored[key].append(tuple(map(int, body.split(b":"))))
        if breaks:
            for connection in list(self.broker.connections):
                connection.abort()
            return None
        return self.broker.stored(command)


def check(stored, calls):
    """Each key holds its messages in the order of the calls; what a retry repeats stays behind."""
    for key in KEYS:
        found = stored[key]
        assert [call for call, _ in found] == sorted(call for call, _ in found)
        assert list(dict.fromkeys(found)) == sorted(set(found))
        assert set(found) == {(call, n) for call, n, its in calls if its == key}


class Script:
    """What is sent by which way, made of a seed."""

    def __init__(self, seed):
        self.luck, self.calls, self.count = random.Random(seed), [], 0

    def messages(self, count, *, key=None):
        self.count += 1
        made = []
        for n in range(count):
            its = key or self.luck.choice(KEYS)
            self.calls.append((self.count, n, its))
            made.append(Message(TOPIC, b"%d:%d" % (self.count, n), sharding_key=its))
        return made

    def next(self):
        """A way to send, and what."""
        way = self.luck.choice(("send_async", "send_async", "send_batch", "send_many"))
        if way == "send_async":
            return way, self.messages(1)[0]
        return way, self.messages(self.luck.randint(1, 12))


@pytest.mark.parametrize("seed", range(6))
def test_batches_and_single_sends_of_a_key_keep_its_order(seed):
    breaking, script = Breaking(seed), Script(seed)

    async def scenario():
        settings = {"namesrv": breaking.broker.addr, "retries": 60}
        async with AsyncProducer("g", **settings) as producer:
            await producer.queues(TOPIC)
            under_way = []
            for _ in range(60):
                way, what = script.next()
                sending = getattr(producer, way)(what, 30.0)
                under_way.append(asyncio.ensure_future(sending))
                if script.luck.random() < 0.3:
                    await asyncio.sleep(script.luck.random() * 0.01)
            await asyncio.gather(*under_way)

    try:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    finally:
        breaking.broker.close()
    check(breaking.stored, script.calls)


@pytest.mark.parametrize("seed", range(3))
def test_a_blocking_batch_comes_behind_the_sends_that_were_begun_before_it(seed):
    breaking, script = Breaking(seed), Script(seed)
    try:
        with Producer("g", namesrv=breaking.broker.addr, retries=60) as producer:
            under_way = []
            for _ in range(25):
                way, what = script.next()
                found = getattr(producer, way)(what, 30.0)
                under_way += [found] if way == "send_async" else []
            for future in under_way:
                future.result(30)
    finally:
        breaking.broker.close()
    check(breaking.stored, script.calls)


def test_a_batch_that_waits_for_a_key_gives_up_in_its_time_and_lets_nobody_past():
    scripted_broker = ScriptedBroker()
    held = []
    scripted_broker.answers[SEND] = held.append  # nobody is answered for now

    def answer_held():
        for connection in scripted_broker.connections:
            connection.write(scripted_broker.stored(held[0]).encode())

    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr, retries=0) as producer:
            await producer.queues(TOPIC)
            first = producer.send_async(Message(TOPIC, b"1", sharding_key="a"), 20.0)
            while not held:
                await asyncio.sleep(0.01)
            with pytest.raises(RemotingTimeout, match="earlier sends of the same key"):
                await producer.send_batch(
                    [Message(TOPIC, b"2", sharding_key="a"), Message(TOPIC, b"3")], 0.1
                )
            scripted_broker.answers[SEND] = scripted_broker.stored
            third = producer.send_async(Message(TOPIC, b"4", sharding_key="a"), 20.0)
            await asyncio.sleep(0.05)
            assert [command.body for command in scripted_broker.requests(SEND)] == [b"1"]
            scripted_broker._loop.call_soon_threadsafe(answer_held)
            await first
            await third
            assert [command.body for command in scripted_broker.requests(SEND)] == [b"1", b"4"]

    try:
        asyncio.run(asyncio.wait_for(scenario(), 30))
    finally:
        scripted_broker.close()


def test_several_keys_are_reserved_at_once_so_no_two_callers_wait_for_each_other():
    async def scenario():
        locks, done, loop = KeyLocks(), [], asyncio.get_running_loop()
        luck = random.Random(1)

        async def ride(number, keys):
            places = locks.reserve(keys)
            await asyncio.sleep(luck.random() * 0.002)
            for key in luck.sample(keys, len(keys)):
                await places.wait([key], loop.time() + 20)
                done.append((key, number))
                places.release([key])
            places.release_all()

        rides = [luck.sample(KEYS, luck.randint(1, 4)) for _ in range(200)]
        async with asyncio.timeout(20):
            await asyncio.gather(*(ride(n, keys) for n, keys in enumerate(rides)))
        for key in KEYS:
            assert [n for its, n in done if its == key] == [
                n for n, keys in enumerate(rides) if key in keys
            ]
        assert locks._last == {}

    asyncio.run(scenario())


def test_a_lock_keeps_its_order_even_when_a_caller_gives_up_waiting():
    async def scenario():
        locks, entered, loop = KeyLocks(), [], asyncio.get_running_loop()

        gave_up = asyncio.Event()

        async def send(name, timeout_s=60.0):
            async with locks.acquire("key", loop.time() + timeout_s):
                entered.append(name)
                await gave_up.wait()

        first = loop.create_task(send("first"))
        await asyncio.sleep(0)
        hasty = loop.create_task(send("hasty", timeout_s=0.05))
        await asyncio.sleep(0)
        last = loop.create_task(send("last"))
        with pytest.raises(RemotingTimeout):
            await hasty
        assert entered == ["first"]
        gave_up.set()
        await first
        await last
        assert entered == ["first", "last"]
        assert locks._last == {}

    asyncio.run(scenario())
