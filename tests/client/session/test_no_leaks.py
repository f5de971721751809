"""No socket outlives its client, however the client ends: what leaks would fail another test."""

import _thread
import asyncio
import gc
import json
import os
import socket
import ssl
import threading
import warnings
from pathlib import Path

import pytest

from client.scripted_broker import TOPIC, ScriptedBroker
from client.short_delay_cluster import until
from cometmq import AsyncProducer, LitePullConsumer, Message, Producer, PushConsumer
from cometmq.client.session import connections
from cometmq.errors import ClientError, CometError, RemotingError
from cometmq.net.channel_pool import ChannelPool
from cometmq.wire.codes import RequestCode

PEM = Path(__file__).parent / "localhost.pem"
BIG = 4 * 1024 * 1024


@pytest.fixture
def scripted_broker():
    scripted_broker = ScriptedBroker()
    yield scripted_broker
    scripted_broker.close()


@pytest.fixture(autouse=True)
def _nothing_left():
    gc.collect()  # what others left is theirs
    yield
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(one.message) for one in left] == []


def deaf_listener():
    """A socket that takes connections and never reads."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_pool_cuts_off_a_peer_that_does_not_read():
    listener, addr = deaf_listener()

    async def scenario():
        pool = ChannelPool()
        channel = await pool.channel(addr)
        posted = channel.send_frame(1, (bytes(BIG),), asyncio.get_running_loop().time() + 30)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert channel._transport.get_write_buffer_size() > 0
        async with asyncio.timeout(10):
            await pool.close()
        assert channel.socket_closed.done()
        with pytest.raises(RemotingError):
            await posted

    asyncio.run(scenario())
    listener.close()


def test_a_pool_that_is_closed_while_it_connects_leaves_nothing():
    async def scenario():
        for turns in range(8):
            listener, addr = deaf_listener()
            pool = ChannelPool()
            attempt = asyncio.ensure_future(pool.channel(addr))
            for _ in range(turns):
                await asyncio.sleep(0)
            await pool.close()
            await asyncio.gather(attempt, return_exceptions=True)
            listener.close()

    asyncio.run(scenario())


def test_a_producer_whose_broker_stopped_reading_leaves_nothing(scripted_broker):
    still = threading.Event()
    with Producer(
        "g", namesrv=scripted_broker.addr, body_bytes_max=BIG, compress_over_bytes=1 << 30
    ) as one:
        one.send(Message(TOPIC, b"x", sharding_key="k"))
        scripted_broker._loop.call_soon_threadsafe(still.wait, 30)
        late = [one.send_async(Message(TOPIC, bytes(BIG)), 0.2) for _ in range(4)]
        assert all(isinstance(future.exception(10), CometError) for future in late)
    still.set()


class SilentTls:
    """Makes the handshake of one connection, and says nothing any more: no close_notify either."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(PEM)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        taken, _ = self._listener.accept()
        with self._context.wrap_socket(taken, server_side=True):
            self._is_over.wait(30)

    def close(self):
        self._is_over.set()
        self._thread.join(10)
        self._listener.close()


def test_a_tls_server_that_sends_no_close_notify_is_not_waited_for():
    silent = SilentTls()

    async def scenario():
        context = ssl.create_default_context(cafile=PEM)
        pool = ChannelPool(tls=context)
        channel = await pool.channel(silent.addr)
        async with asyncio.timeout(10):
            await pool.close()
        assert channel.socket_closed.done()

    try:
        asyncio.run(scenario())
    finally:
        silent.close()


def test_a_stop_that_is_cancelled_at_any_turn_leaves_nothing(scripted_broker):
    unanswered = RequestCode.UNREGISTER_CLIENT
    scripted_broker.answers[unanswered] = lambda command: None

    async def scenario():
        for turns in range(1, 12):
            producer = AsyncProducer("g", namesrv=scripted_broker.addr)
            await producer.start()
            await producer.send(Message(TOPIC, b"x"))
            stopping = asyncio.ensure_future(producer.stop())
            for cancels in range(2):
                for _ in range(turns + cancels):
                    await asyncio.sleep(0)
                stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            async with asyncio.timeout(10):
                while scripted_broker.connections:
                    await asyncio.sleep(0.001)

    asyncio.run(scenario())


def test_an_interrupted_stop_of_a_blocking_client_leaves_nothing(scripted_broker):
    """Ctrl-C while a stop waits: the loop ends at once, and takes the connections with it."""
    scripted_broker.answers[RequestCode.UNREGISTER_CLIENT] = lambda command: None
    producer = Producer("g", namesrv=scripted_broker.addr)
    producer.start()
    producer.send(Message(TOPIC, b"x", sharding_key="k"))
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        producer.stop()
    until(lambda: not scripted_broker.connections)


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
def test_a_start_that_fails_keeps_no_share_of_the_connections(scripted_broker, tmp_path, kind):
    settings = {"namesrv": scripted_broker.addr, "broadcasting": True, "offsets_dir": tmp_path}

    def begin(group):
        consumer = kind(group, instance_name="one", **settings)
        consumer.subscribe(TOPIC, "*", *([lambda messages: None] if kind is PushConsumer else []))
        consumer.start()
        return consumer

    good = begin("good")
    folder = tmp_path / good.client_id / "bad"
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_text(json.dumps({"offsetTable": "none"}))
    (folder / "offsets.json.bak").write_text("{")
    with pytest.raises(ClientError):
        begin("bad")
    until(lambda: scripted_broker.connections)
    good.stop()
    until(lambda: not scripted_broker.connections)
    assert not [key for key in connections._shared if scripted_broker.addr in key[2]]


def test_a_child_of_a_fork_closes_nothing_of_its_parent(scripted_broker):
    with Producer("g", namesrv=scripted_broker.addr) as producer:
        producer.send(Message(TOPIC, b"x", sharding_key="k"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.stop()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(Message(TOPIC, b"y", sharding_key="k"))
