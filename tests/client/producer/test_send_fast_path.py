"""The fast paths of a send: over an open connection, and from the calling thread itself."""

import asyncio
import contextlib
import itertools
import socket
import threading
import time

import pytest

from client.scripted_broker import BROKER, TOPIC
from cometmq import (
    AsyncProducer,
    BrokerError,
    ClientError,
    InvalidMessage,
    Message,
    MessageQueue,
    Producer,
    RemotingError,
    RemotingTimeout,
    RouteNotFound,
)
from cometmq.client.producer import thread_sender
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.request_signature import sign

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def numbered(scripted_broker):
    """Have the broker give each send the next offset."""
    offsets = itertools.count()

    def stored(command):
        ext = {"queueId": command.ext["e"], "queueOffset": str(next(offsets)), "msgId": "AB" * 16}
        return response(command.opaque, 0, ext=ext)

    scripted_broker.answers[SEND] = stored


def test_sends_on_the_fast_path_carry_all_a_message_has(scripted_broker):
    numbered(scripted_broker)
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        for n in range(3):
            made = Message(TOPIC, b"%d" % n, tags="t", keys="a b", sharding_key=None)
            assert producer.send(made).queue_offset == n
        keyed = producer.send(Message(TOPIC, b"x", tags="ü", keys='"', sharding_key="k%d"))
        assert keyed.queue_offset == 3
    sent = scripted_broker.requests(SEND)
    assert [command.body for command in sent] == [b"0", b"1", b"2", b"x"]
    for command in sent[:3]:
        pairs = dict(pair.split("\x01") for pair in command.ext["i"].split("\x02") if pair)
        assert pairs.pop("UNIQ_KEY").isalnum()
        assert pairs == {"TAGS": "t", "KEYS": "a b", "WAIT": "true"}
    last = dict(pair.split("\x01") for pair in sent[3].ext["i"].split("\x02") if pair)
    assert (last["TAGS"], last["KEYS"], last["__SHARDINGKEY"]) == ("ü", '"', "k%d")


def test_sends_with_keys_are_fast_as_well_and_each_is_signed(scripted_broker):
    numbered(scripted_broker)
    scripted_broker.answers[BATCH] = scripted_broker.answers[SEND]
    keys = {"access_key": "ann", "secret_key": "of-many"}

    async def from_a_loop():
        async with AsyncProducer("h", namesrv=scripted_broker.addr, **keys) as producer:
            for n in range(3):
                await producer.send(Message(TOPIC, b"%d" % n, tags="t%d"))
            await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])

    with Producer("g", namesrv=scripted_broker.addr, **keys) as producer:
        for n in range(3):
            producer.send(Message(TOPIC, b"%d" % n, keys="k"))
    asyncio.run(from_a_loop())
    sent = [*scripted_broker.requests(SEND), *scripted_broker.requests(BATCH)]
    assert len(sent) == 7
    for command in sent:
        fields = command.ext
        assert fields["Signature"] == sign(fields, command.body, "of-many")
    fast = [command for command in sent if next(iter(command.ext)) == "AccessKey"]
    assert len(fast) >= 4, "the slow path, of the first ones, adds the keys behind the rest"


@pytest.mark.parametrize(
    "wrong",
    [
        Message(["t"], b"x"),
        Message(TOPIC, b"x", tags=["t"]),
        Message(TOPIC, b"x", sharding_key=["k"]),
        Message(["t"], b"x", sharding_key="k"),
        Message(TOPIC, bytearray(b"x")),
        Message(TOPIC, b"x", properties=["p"]),
    ],
    ids=["topic", "tags", "key", "keyed topic", "body", "properties"],
)
def test_what_is_no_text_is_refused_by_every_method(scripted_broker, wrong):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        for send in (producer.send, lambda m: producer.send_batch([m, m])):
            with pytest.raises(InvalidMessage):
                send(wrong)
        with pytest.raises(InvalidMessage):
            producer.send_async(wrong).result(10)
    assert len(scripted_broker.requests(SEND)) == 1


def once(scripted_broker, first):
    """Answer the first send after now by `first`, the others well."""
    stored = scripted_broker.stored
    calls = itertools.count()
    scripted_broker.answers[SEND] = lambda command: (first if next(calls) == 0 else stored)(command)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_send_whose_answer_is_lost_goes_on_with_the_same_id(scripted_broker, key):
    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr) as producer:
            await producer.send(Message(TOPIC, b"first"))
            before = len(scripted_broker.requests(SEND))

            def break_off(command):
                for connection in list(scripted_broker.connections):
                    connection.abort()

            once(scripted_broker, break_off)
            result = await producer.send(Message(TOPIC, b"x", sharding_key=key))
            again = scripted_broker.requests(SEND)[before:]
            assert len(again) == 2
            assert {result.msg_id in command.ext["i"] for command in again} == {True}
            assert len({command.ext["g"] for command in again}) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [None, "k"])
def test_a_refusal_that_may_pass_is_tried_again_and_another_is_raised(scripted_broker, key):
    def refuse(code):
        return lambda command: response(command.opaque, code, remark="no")

    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        once(scripted_broker, refuse(ResponseCode.SYSTEM_BUSY))
        assert producer.send(Message(TOPIC, b"x", sharding_key=key)).queue_offset == 0
        once(scripted_broker, refuse(ResponseCode.NO_PERMISSION))
        assert producer.send(Message(TOPIC, b"x", sharding_key=key)).queue_offset == 0
        once(scripted_broker, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerError, match="no") as caught:
            producer.send(Message(TOPIC, b"x", sharding_key=key))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_sends_without_answer_end_at_their_deadlines_whatever_their_order(scripted_broker):
    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr, retries=0) as producer:
            await producer.send(Message(TOPIC, b"first"))
            scripted_broker.answers[SEND] = lambda command: None
            loop = asyncio.get_running_loop()
            begun = loop.time()

            async def one(timeout_s):
                with pytest.raises(RemotingTimeout):
                    await producer.send(Message(TOPIC, b"x"), timeout_s)
                return loop.time() - begun

            wanted = (1.4, 0.1, 0.75)
            took = await asyncio.gather(*map(one, wanted))
            assert all(found >= least for least, found in zip(wanted, took, strict=True))
            assert sorted(took) == [took[1], took[2], took[0]], "each at its own deadline"

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["send", "keyed", "batch", "blocking"])
def test_a_topic_that_may_not_be_written_any_more_is_an_error_that_says_so(scripted_broker, way):
    perm = 6

    def route(command):
        broker = BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: scripted_broker.addr})
        queues = QueueData(broker_name=BROKER, read_queue_nums=1, write_queue_nums=1, perm=perm)
        found = TopicRouteData(broker_datas=(broker,), queue_datas=(queues,))
        return response(command.opaque, 0, body=encode_route(found, strict=True))

    scripted_broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        perm = 4
        producer._bridge.call(producer._inner._session.routes.refresh())
        send = {
            "send": lambda: producer.send_async(Message(TOPIC, b"x")).result(10),
            "keyed": lambda: producer.send(Message(TOPIC, b"x", sharding_key="k")),
            "batch": lambda: producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")]),
            "blocking": lambda: producer.send(Message(TOPIC, b"x")),
        }[way]
        with pytest.raises(RouteNotFound, match="read-only"):
            send()


def test_batches_take_the_queues_that_are_free_and_wait_where_none_is(scripted_broker):
    held = []
    broker = BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: scripted_broker.addr})
    queues = QueueData(broker_name=BROKER, read_queue_nums=2, write_queue_nums=2, perm=6)
    route = encode_route(TopicRouteData(broker_datas=(broker,), queue_datas=(queues,)), strict=True)
    scripted_broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: response(
        command.opaque, 0, body=route
    )
    scripted_broker.answers[BATCH] = held.append  # nobody is answered for now

    def answer_first():
        (connection,) = scripted_broker.clients
        connection.write(scripted_broker.stored(held.pop(0)).encode())

    async def arrived(count):
        while len(scripted_broker.requests(BATCH)) < count:
            await asyncio.sleep(0.01)
        return [command.ext["e"] for command in scripted_broker.requests(BATCH)]

    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr, retries=0) as producer:
            await producer.send(Message(TOPIC, b"connect"))
            tasks = []
            for at in range(4):  # two queues, so the last two wait, each for one of them
                both = [Message(TOPIC, b"%d" % (2 * at + more)) for more in range(2)]
                tasks.append(asyncio.create_task(producer.send_batch(both, 20.0)))
                await arrived(min(at + 1, 2))
            assert sorted(await arrived(2)) == ["0", "1"]
            scripted_broker._loop.call_soon_threadsafe(answer_first)
            assert len(await arrived(3)) == 3
            assert len(held) == 2
            for _ in range(2):
                scripted_broker._loop.call_soon_threadsafe(answer_first)
            await arrived(4)
            scripted_broker._loop.call_soon_threadsafe(answer_first)
            for results in await asyncio.gather(*tasks):
                assert len({result.msg_id for result in results}) == 2
            assert sorted(await arrived(4)) == ["0", "0", "1", "1"]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_blocking_send_without_answer_ends_at_its_deadline(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        producer.send(Message(TOPIC, b"second"))
        scripted_broker.answers[SEND] = lambda command: None
        with pytest.raises(RemotingTimeout):
            producer.send(Message(TOPIC, b"x"), timeout_s=0.3)
        scripted_broker.answers[SEND] = scripted_broker.stored
        assert producer.send(Message(TOPIC, b"y")).queue_offset == 0


def test_threads_have_connections_of_their_own_up_to_the_limit(scripted_broker, monkeypatch):
    monkeypatch.setattr(thread_sender, "THREADS_MAX", 3)
    numbered(scripted_broker)
    together = threading.Barrier(6)
    results = []

    def work(producer):
        together.wait(10)
        results.extend(producer.send(Message(TOPIC, b"x")) for _ in range(50))

    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        threads = [threading.Thread(target=work, args=(producer,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(result.queue_offset for result in results) == list(range(1, 301))
        assert len({result.msg_id for result in results}) == 300
        # name server, loop thread, and three of threads at most
        assert 2 <= len(scripted_broker.connections) <= 2 + 3


def test_a_connection_that_was_idle_for_long_is_not_used_again(scripted_broker, monkeypatch):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        producer.send(Message(TOPIC, b"second"))
        sender = producer._inner.pipeline.thread_sender
        (broker,) = sender._brokers.values()
        (idle,) = broker.idle
        monkeypatch.setattr(thread_sender, "IDLE_S", 0.0)
        producer.send(Message(TOPIC, b"third"))
        assert broker.idle != [idle]
        assert broker.count == 1


def test_a_broker_that_closes_or_sends_garbage_is_an_error_and_no_answer_gets_mixed_up(
    scripted_broker,
):
    listener = socket.create_server(("127.0.0.1", 0))
    talker = threading.Thread(target=_nonsense, args=(listener,))
    talker.start()
    from cometmq.errors import ProtocolError, SendFailed
    from cometmq.net.send_socket import SendSocket

    addr = f"127.0.0.1:{listener.getsockname()[1]}"
    one = SendSocket(addr, 1.0)
    with pytest.raises(SendFailed, match="closed"):
        one.exchange(one.next_opaque(), b"hang up", 1.0)
    other = SendSocket(addr, 1.0)
    with pytest.raises(ProtocolError):
        other.exchange(other.next_opaque(), b"talk", 1.0)
    with pytest.raises(SendFailed):
        other.exchange(other.next_opaque(), b"more", 1.0)
    talker.join(10)
    listener.close()


def _nonsense(listener):
    for answer in (b"", b"\x7f" * 64):
        with listener.accept()[0] as connection:
            connection.recv(100)
            if answer:
                connection.sendall(answer)


def drop_by_drop(listener, gap_s):
    """Answer the first frame one byte at a time, for as long as somebody listens."""
    with listener.accept()[0] as connection:
        connection.recv(100)
        try:
            for byte in itertools.repeat(b"\x00\x00\x10\x00", 10_000):
                connection.sendall(byte[2:3])
                if over.wait(gap_s):
                    return
        except OSError:
            pass


over = threading.Event()


def test_an_answer_that_trickles_in_ends_at_the_deadline(scripted_broker):
    from cometmq.net.send_socket import SendSocket

    listener = socket.create_server(("127.0.0.1", 0))
    talker = threading.Thread(target=drop_by_drop, args=(listener, 4.0), daemon=True)
    talker.start()
    one = SendSocket(f"127.0.0.1:{listener.getsockname()[1]}", 1.0)
    begun = time.monotonic()
    with pytest.raises(RemotingTimeout):
        one.exchange(one.next_opaque(), b"ask", 5.0)
    assert time.monotonic() - begun < 7.7, "it waited for the drop after the deadline"
    over.set()
    talker.join(10)
    listener.close()


def test_a_broker_that_takes_no_connection_costs_no_more_than_the_time_given(scripted_broker):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]  # the backlog is full: nobody gets in
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with Producer("g", namesrv=scripted_broker.addr, retries=0) as producer:
            producer.send(Message(TOPIC, b"first"))
            producer.send(Message(TOPIC, b"second"))
            pipeline = producer._inner.pipeline
            pipeline.thread_sender.close()
            pipeline.thread_sender._is_closed = False
            addr = f"127.0.0.1:{full.getsockname()[1]}"
            for name, addrs in pipeline.session.routes._addrs.items():
                addrs[0] = addr
                assert pipeline.session.routes.find_master_addr(name) == addr
            for place in pipeline.fast_path._routes[TOPIC].send_targets.queues:
                place.addr, place.channel = addr, None
            begun = time.monotonic()
            with pytest.raises(RemotingError):
                producer.send(Message(TOPIC, b"x"), timeout_s=4.0)
            assert time.monotonic() - begun < 7.5, "two paths took the whole time each"
        for one in waiting:
            one.close()


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, 10**9])
def test_a_very_long_timeout_is_accepted(scripted_broker, timeout_s):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        for _ in range(2):
            assert producer.send(Message(TOPIC, b"x"), timeout_s=timeout_s).queue_offset == 0


@pytest.mark.parametrize("key", [None, "k"])
def test_a_region_that_is_not_the_default_is_in_each_result(scripted_broker, key):
    def stored(command):
        place = {"queueId": command.ext["e"], "queueOffset": "7", "msgId": "AB" * 16}
        more = {"MSG_REGION": "north", "TRACE_ON": "false"}
        return response(command.opaque, 0, ext=place | more)

    scripted_broker.answers[SEND] = stored
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        sent = [producer.send(Message(TOPIC, b"x", sharding_key=key)) for _ in range(4)]
    assert [(one.region_id, one.trace_on) for one in sent] == [("north", False)] * 4


def test_no_method_of_sending_overtakes_an_earlier_send_of_the_key_that_is_tried_again(
    scripted_broker,
):
    def busy(command):
        return response(command.opaque, ResponseCode.SYSTEM_BUSY, remark="not now")

    async def scenario():
        async with AsyncProducer("g", namesrv=scripted_broker.addr) as producer:
            await producer.send(Message(TOPIC, b"first"))
            (queue,) = await producer.queues(TOPIC)
            later = Message(TOPIC, b"later", sharding_key="k")
            for send in (
                lambda: producer.send(later),
                lambda: producer.send(later, queue=queue),
                lambda: producer.send(later, queue=lambda queues, message: queues[0]),
                lambda: producer.transaction().send(later),
                lambda: producer.request(later, timeout_s=0.5),
                lambda: producer.send_oneway(later),
            ):
                scripted_broker.received.clear()
                once(scripted_broker, busy)
                sooner = producer.send_async(Message(TOPIC, b"sooner", sharding_key="k"))
                while not scripted_broker.requests(SEND):
                    await asyncio.sleep(0.001)
                with contextlib.suppress(RemotingTimeout):
                    await send()
                await sooner
                while len(scripted_broker.requests(SEND)) < 3:
                    await asyncio.sleep(0.001)
                bodies = [command.body for command in scripted_broker.requests(SEND)]
                assert bodies == [b"sooner", b"sooner", b"later"]

    asyncio.run(scenario())


def test_a_queue_of_another_topic_is_refused_and_so_is_no_message_in_a_transaction(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(ClientError, match="elsewhere"):
                send(Message(TOPIC, b"x"), queue=MessageQueue("elsewhere", "b0", 0))
        with pytest.raises(InvalidMessage):
            producer.transaction().send(None)
    assert not scripted_broker.requests(SEND)


@pytest.mark.parametrize("way", ["send_batch", "send_many"])
@pytest.mark.parametrize("key", [None, "k" * 25], ids=["fast", "slow"])
def test_no_frame_is_larger_than_the_limit_of_one_body(scripted_broker, way, key):
    made = [Message(TOPIC, b"x" * 140, tags="t" * 120, sharding_key=key) for _ in range(30)]
    with Producer("g", namesrv=scripted_broker.addr, body_bytes_max=8192) as producer:
        producer.send(Message(TOPIC, b"opens the connection"))
        assert len(getattr(producer, way)(made)) == 30
    sizes = [len(command.body) for command in scripted_broker.requests(BATCH)]
    assert len(sizes) == 2
    assert max(sizes) <= 8192
