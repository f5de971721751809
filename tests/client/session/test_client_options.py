"""What a cloud vendor's cluster needs: signatures, instances, unit names, TLS; and compression."""

import asyncio
import socket
import socketserver
import ssl
import threading
from pathlib import Path
from select import select

import pytest

from client.scripted_broker import TOPIC
from cometmq import Admin, AsyncProducer, Message, Producer, SettingsError
from cometmq.client.session.client_options import client_options
from cometmq.errors import CertificateRefused, CometError
from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.wire.bodies.heartbeat import decode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import response
from cometmq.wire.compression import PACK, deflate, inflate
from cometmq.wire.request_signature import sign

SEND, ROUTE = RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ROUTEINFO_BY_TOPIC
PEM = Path(__file__).with_name("localhost.pem")


def test_every_request_is_signed(scripted_broker):
    keys = {"access_key": "ak", "secret_key": "sk", "security_token": "sts"}
    with Producer("g", namesrv=scripted_broker.addr, **keys) as producer:
        for _ in range(3):
            producer.send(Message(TOPIC, b"body", keys="k"))
        producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b")])
        producer.send_oneway(Message(TOPIC, b"c"))
        with producer.transaction() as tx:
            tx.send(Message(TOPIC, b"d"))
    asked = [command for command in scripted_broker.received if not command.is_response]
    assert {SEND, ROUTE, RequestCode.HEART_BEAT} < {command.code for command in asked}
    for command in asked:
        assert (command.ext["AccessKey"], command.ext["SecurityToken"]) == ("ak", "sts")
        assert command.ext["Signature"] == sign(command.ext, command.body, "sk")


def test_every_request_of_an_admin_is_signed(scripted_broker):
    keys = {"access_key": "ak", "secret_key": "sk"}
    with Admin(namesrv=scripted_broker.addr, **keys) as admin:
        assert len(admin.queues(TOPIC)) == 1
    (asked,) = scripted_broker.received
    assert asked.ext["Signature"] == sign(asked.ext, asked.body, "sk")
    with pytest.raises(SettingsError, match="secret_key"):
        Admin(namesrv=scripted_broker.addr, access_key="ak")


def test_a_broker_that_gives_no_permission_is_not_asked_until_the_timeout(scripted_broker):
    def refuse(command):
        return response(command.opaque, ResponseCode.NO_PERMISSION, remark="no such user")

    scripted_broker.answers[SEND] = scripted_broker.answers[RequestCode.SEND_BATCH_MESSAGE] = refuse
    with (
        Producer("g", namesrv=scripted_broker.addr) as producer,
        pytest.raises(CometError, match="no such user"),
    ):
        producer.send_many([Message(TOPIC, b"a"), Message(TOPIC, b"b")], timeout_s=100)
    assert len(scripted_broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 3


def test_an_instance_wraps_names_on_the_wire_and_nowhere_else(scripted_broker):
    wrapped = f"MQ_INST_1_a%{TOPIC}"
    with Producer("g", namesrv=scripted_broker.addr, namespace="MQ_INST_1_a") as producer:
        result = producer.send(Message(TOPIC, b"x", sharding_key="k"))
        assert result.queue.topic == TOPIC
        assert {queue.topic for queue in producer.queues(TOPIC)} == {TOPIC}
        producer.send_batch([Message(TOPIC, b"a"), Message(TOPIC, b"b")])
        with producer.transaction() as tx:
            tx.send(Message(TOPIC, b"d"))
    asked = {command.ext["topic"] for command in scripted_broker.requests(ROUTE)}
    assert asked - {DEFAULT_TOPIC} == {wrapped}  # a start asks whether there is any broker
    for command in (
        *scripted_broker.requests(SEND),
        *scripted_broker.requests(RequestCode.SEND_BATCH_MESSAGE),
    ):
        assert (command.ext["a"], command.ext["b"]) == ("MQ_INST_1_a%g", wrapped)
    assert "INSTANCE_ID\x01MQ_INST_1_a\x02" in scripted_broker.requests(SEND)[0].ext["i"]
    assert scripted_broker.requests(RequestCode.END_TRANSACTION)[0].ext["topic"] == wrapped
    beat = decode_heartbeat(scripted_broker.requests(RequestCode.HEART_BEAT)[0].body)
    assert beat.producer_groups == ("MQ_INST_1_a%g",)


def test_the_second_kind_of_namespace_is_a_field_and_the_unit_a_part_of_the_id(scripted_broker):
    options = {"namespace_v2": "inst", "unit_name": "east", "instance_name": "i1"}
    with Producer("g", namesrv=scripted_broker.addr, **options) as producer:
        producer.send(Message(TOPIC, b"x"))
    for command in scripted_broker.received:
        assert (command.ext["nsd"], command.ext["ns"]) == ("true", "inst")
    beat = decode_heartbeat(scripted_broker.requests(RequestCode.HEART_BEAT)[0].body)
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


class Terminator(socketserver.ThreadingTCPServer):
    """Takes TLS on one port and passes what is in it on to another."""

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.inner = ("127.0.0.1", port)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(PEM)
        self.addr = f"127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self.shutdown()
        self.server_close()  # waits for the tunnels, whose clients have gone
        self._thread.join(10)


class Tunnel(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            outer = self.server.context.wrap_socket(self.request, server_side=True)
        except OSError:  # a client that does not trust us
            return
        with outer, socket.create_connection(self.server.inner) as inner:
            while True:
                ready = [outer] if outer.pending() else select([outer, inner], [], [], 10)[0]
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    (inner if one is outer else outer).sendall(data)
                if not ready:
                    return


def test_a_producer_speaks_tls(scripted_broker):
    terminator = Terminator(scripted_broker.port)
    scripted_broker.addr = terminator.addr  # what the route says
    context = ssl.create_default_context(cafile=PEM)
    try:
        with Producer("g", namesrv=terminator.addr, tls=context) as producer:
            results = [producer.send(Message(TOPIC, b"x")) for _ in range(3)]
            assert len({result.msg_id for result in results}) == 3

        async def untrusting():
            with pytest.raises(CertificateRefused, match="certificate"):
                async with AsyncProducer("g", namesrv=terminator.addr, tls=True) as producer:
                    await producer.send(Message(TOPIC, b"x"))

        asyncio.run(untrusting())
    finally:
        terminator.close()
    assert len(scripted_broker.requests(SEND)) == 3


def test_clients_of_one_name_that_trust_the_system_share_their_tls_context():
    one, other = (client_options({"namesrv": "h:1", "tls": True}, {}).tls for _ in range(2))
    assert one is other is not None


@pytest.mark.parametrize(("kind", "bits"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_large_bodies_travel_compressed_as_configured(scripted_broker, kind, bits):
    needed = {"lz4": "lz4.frame", "zstd": "zstandard"}.get(kind, "zlib")
    pytest.importorskip(needed, reason="pip install 'cometmq[compression]'")
    body = b"again and " * 1000
    with Producer("g", namesrv=scripted_broker.addr, compression=kind) as producer:
        producer.send(Message(TOPIC, body))
        producer.send(Message(TOPIC, b"short"))
    large, short = scripted_broker.requests(SEND)
    assert (int(large.ext["f"]), int(short.ext["f"])) == (bits, 0)
    assert len(large.body) < len(body)
    assert inflate(large.body, bits) == body
    assert deflate(bytes(range(256)), kind, 5) == (bytes(range(256)), 0)
    assert set(PACK) == {"zlib", "lz4", "zstd"}
