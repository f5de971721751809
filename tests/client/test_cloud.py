"""What a cloud vendor's cluster needs: signatures, instances, unit names, TLS; and compression."""

import asyncio
import ssl
import threading
from pathlib import Path

import pytest

from cometmq import AsyncProducer, Message, Producer, SettingsError
from cometmq.errors import ConnectFailed
from cometmq.wire.bodies.heartbeat import decode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.compression import PACK, deflate, inflate
from cometmq.wire.signature import sign

from .scripted import TOPIC, ScriptedPeer

SEND, ROUTE = RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ROUTEINFO_BY_TOPIC
PEM = Path(__file__).with_name("localhost.pem")


@pytest.fixture
def peer():
    made = ScriptedPeer()
    made.answers[RequestCode.SEND_BATCH_MESSAGE] = made.stored
    made.answers[RequestCode.END_TRANSACTION] = made.fine
    yield made
    made.close()


def test_every_request_is_signed(peer):
    keys = {"access_key": "ak", "secret_key": "sk", "security_token": "sts"}
    with Producer("g", namesrv=peer.addr, **keys) as producer:
        for _ in range(3):
            producer.send(Message(TOPIC, b"body", keys="k"))
        producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b")])
        producer.send_oneway(Message(TOPIC, b"c"))
        with producer.transaction() as tx:
            tx.send(Message(TOPIC, b"d"))
    asked = [command for command in peer.received if not command.is_response]
    assert {SEND, ROUTE, RequestCode.HEART_BEAT} < {command.code for command in asked}
    for command in asked:
        assert (command.ext["AccessKey"], command.ext["SecurityToken"]) == ("ak", "sts")
        assert command.ext["Signature"] == sign(command.ext, command.body, "sk")


def test_an_instance_wraps_names_on_the_wire_and_nowhere_else(peer):
    wrapped = f"MQ_INST_1_a%{TOPIC}"
    with Producer("g", namesrv=peer.addr, namespace="MQ_INST_1_a") as producer:
        result = producer.send(Message(TOPIC, b"x", sharding_key="k"))
        assert result.queue.topic == TOPIC
        assert {queue.topic for queue in producer.queues(TOPIC)} == {TOPIC}
        producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b")])
        with producer.transaction() as tx:
            tx.send(Message(TOPIC, b"d"))
    assert {command.ext["topic"] for command in peer.of(ROUTE)} == {wrapped}
    for command in (*peer.of(SEND), *peer.of(RequestCode.SEND_BATCH_MESSAGE)):
        assert (command.ext["a"], command.ext["b"]) == ("MQ_INST_1_a%g", wrapped)
    assert "INSTANCE_ID\x01MQ_INST_1_a\x02" in peer.of(SEND)[0].ext["i"]
    assert peer.of(RequestCode.END_TRANSACTION)[0].ext["topic"] == wrapped
    beat = decode_heartbeat(peer.of(RequestCode.HEART_BEAT)[0].body)
    assert beat.producer_groups == ("MQ_INST_1_a%g",)


def test_the_second_kind_of_namespace_is_a_field_and_the_unit_a_part_of_the_id(peer):
    told = {"namespace_v2": "inst", "unit_name": "east", "instance_name": "i1"}
    with Producer("g", namesrv=peer.addr, **told) as producer:
        producer.send(Message(TOPIC, b"x"))
    for command in peer.received:
        assert (command.ext["nsd"], command.ext["ns"]) == ("true", "inst")
    beat = decode_heartbeat(peer.of(RequestCode.HEART_BEAT)[0].body)
    assert beat.client_id.endswith("@i1@east")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"access_key": "ak"}, "secret_key"),
        ({"security_token": "t"}, "access_key"),
        ({"namespace": "no spaces"}, "namespace"),
        ({"tls": "yes"}, "SSLContext"),
        ({"compression": "rar"}, "'zlib', 'lz4', 'zstd'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong, sentence):
    with pytest.raises(SettingsError, match=sentence):
        Producer("g", namesrv="127.0.0.1:1", **wrong)


class Terminator:
    """Takes TLS on one port and passes what is in it on to another."""

    def __init__(self, port):
        self._port, self._tasks = port, set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PEM)
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        self.addr = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(self._pass(reader, inner_writer), self._pass(inner_reader, writer))
        finally:
            writer.close()
            inner_writer.close()

    async def _pass(self, reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    def close(self):
        async def stop():
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def test_a_producer_speaks_tls(peer):
    terminator = Terminator(peer.port)
    peer.addr = terminator.addr  # what the route says
    context = ssl.create_default_context(cafile=PEM)
    try:
        with Producer("g", namesrv=terminator.addr, tls=context) as producer:
            results = [producer.send(Message(TOPIC, b"x")) for _ in range(3)]
            assert len({result.msg_id for result in results}) == 3

        async def untrusting():
            async with AsyncProducer("g", namesrv=terminator.addr, tls=True) as producer:
                await producer.send(Message(TOPIC, b"x"))

        with pytest.raises(ConnectFailed, match="certificate"):
            asyncio.run(untrusting())
    finally:
        terminator.close()
    assert len(peer.of(SEND)) == 3


@pytest.mark.parametrize(("kind", "bits"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_large_bodies_travel_compressed_as_told(peer, kind, bits):
    pytest.importorskip({"lz4": "lz4.frame", "zstd": "zstandard"}.get(kind, "zlib"))
    body = b"again and " * 1000
    with Producer("g", namesrv=peer.addr, compression=kind) as producer:
        producer.send(Message(TOPIC, body))
        producer.send(Message(TOPIC, b"short"))
    large, short = peer.of(SEND)
    assert (int(large.ext["f"]), int(short.ext["f"])) == (bits, 0)
    assert len(large.body) < len(body)
    assert inflate(large.body, bits) == body
    assert deflate(bytes(range(256)), kind, 5) == (bytes(range(256)), 0)
    assert set(PACK) == {"zlib", "lz4", "zstd"}
