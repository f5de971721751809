"""The blocking channel against a peer that answers late, out of order, in pieces, or not at all."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select

import pytest

from cometmq.errors import (
    CertificateRefused,
    ConnectFailed,
    ProtocolError,
    RemotingTimeout,
    SendFailed,
    TooManyRequests,
)
from cometmq.net.blocking_channel import OUTSTANDING_MAX, BlockingChannel
from cometmq.wire.command import Command, request, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.namesrv import GetRouteInfoRequestHeader
from cometmq.wire.request_signature import Credentials, sign

PEM = Path(__file__).parents[1] / "client" / "session" / "localhost.pem"
Serve = Callable[[socket.socket], None]


@contextmanager
def peer(serve: Serve) -> Iterator[str]:
    """One connection is accepted and handed to `serve` on a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def requests(connection: socket.socket) -> Iterator[Command]:
    decoder = FrameDecoder()
    while chunk := connection.recv(65536):
        for frame in decoder.feed(chunk):
            yield Command.decode(frame)


def until_closed(connection: socket.socket) -> None:
    for _ in requests(connection):
        pass


def echo(connection: socket.socket) -> None:
    for asked in requests(connection):
        if not asked.is_oneway:
            connection.sendall(response(asked.opaque, asked.code, body=asked.body).encode())


def test_a_call_gets_its_answer_and_a_oneway_none() -> None:
    with peer(echo) as addr, BlockingChannel(addr) as channel:
        channel.oneway(7, body=b"nobody answers")
        answer = channel.call(12, body=b"x" * 3_000_000)
    assert answer.code == 12
    assert answer.body == b"x" * 3_000_000
    assert not channel.is_open


def encrypted(serve: Serve) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)

    def run(connection: socket.socket) -> None:
        try:
            inner = context.wrap_socket(connection, server_side=True)
        except OSError:  # a client that does not trust us
            return
        with inner:
            serve(inner)

    return run


def test_requests_travel_encrypted_and_signed() -> None:
    def check(connection: socket.socket) -> None:
        for asked in requests(connection):
            is_signed = asked.ext.get("Signature") == sign(asked.ext, asked.body, "sk")
            answer = response(asked.opaque, asked.code if is_signed else 16, body=asked.body)
            connection.sendall(answer.encode())

    tls = ssl.create_default_context(cafile=PEM)
    keys = Credentials("ak", "sk")
    with (
        peer(encrypted(check)) as addr,
        BlockingChannel(addr, credentials=keys, tls=tls) as channel,
    ):
        answer = channel.call(12, GetRouteInfoRequestHeader(topic="T"), b"x" * 3_000_000)
        assert (answer.code, answer.body) == (12, b"x" * 3_000_000)
        assert [channel.wait(one).code for one in channel.post_all(7, [None, None])] == [7, 7]


def test_a_server_without_a_trusted_certificate_is_refused_for_good() -> None:
    tls = ssl.create_default_context()
    with peer(encrypted(until_closed)) as addr, pytest.raises(CertificateRefused) as refused:
        BlockingChannel(addr, tls=tls)
    assert f"the certificate of {addr} is refused: self-signed" in str(refused.value)
    assert not refused.value.retriable
    with peer(lambda connection: None) as addr, pytest.raises(ConnectFailed) as hung_up:
        BlockingChannel(addr, tls=tls)
    assert f"no connection to {addr}" in str(hung_up.value)
    assert hung_up.value.retriable


def test_readable_may_be_tls_alone_and_no_answer_is_waited_for() -> None:
    may_answer = threading.Event()

    def late(connection: socket.socket) -> None:
        asked = next(requests(connection))
        may_answer.wait(10)
        connection.sendall(response(asked.opaque, 3).encode())
        until_closed(connection)

    tls = ssl.create_default_context(cafile=PEM)
    with peer(encrypted(late)) as addr, BlockingChannel(addr, tls=tls) as channel:
        number, turns = channel.post(3), 0
        answers: dict[int, Command] = {}
        while not answers:
            assert select([channel], [], [], 10)[0]
            answers = channel.receive()
            turns += 1
            may_answer.set()
        assert answers[number].code == 3
        assert turns > 1, "a server of TLS 1.3 sends tickets first"


def test_answers_are_matched_whatever_their_order_and_pieces() -> None:
    def backwards(connection: socket.socket) -> None:
        asked = requests(connection)
        three = [next(asked) for _ in range(3)]
        stray = request(40, three[0].opaque).encode() + response(99, 0).encode()
        data = stray + b"".join(response(one.opaque, one.code).encode() for one in three[::-1])
        for at in range(0, len(data), 11):
            connection.sendall(data[at : at + 11])
        until_closed(connection)

    with peer(backwards) as addr, BlockingChannel(addr) as channel:
        numbers = [channel.post(code) for code in (101, 102, 103)]
        assert [channel.wait(number).code for number in numbers] == [101, 102, 103]


def test_an_answer_that_comes_too_late_is_dropped_and_the_channel_lives() -> None:
    may_answer = threading.Event()

    def late(connection: socket.socket) -> None:
        asked = requests(connection)
        first = next(asked)
        may_answer.wait(10)
        second = next(asked)
        for one in (first, second):
            connection.sendall(response(one.opaque, one.code).encode())
        until_closed(connection)

    with peer(late) as addr, BlockingChannel(addr) as channel:
        began = time.monotonic()
        with pytest.raises(RemotingTimeout, match=r"did not answer within 0\.2 s"):
            channel.call(1, timeout_s=0.2)
        assert 0.2 <= time.monotonic() - began < 5
        may_answer.set()
        assert channel.call(2).code == 2
        assert not channel._answers


def test_a_forgotten_answer_is_dropped() -> None:
    with peer(echo) as addr, BlockingChannel(addr) as channel:
        channel.forget(channel.post(1))
        came = channel.post(2)
        assert channel.call(3).code == 3
        channel.forget(came)
        assert not channel._answers


def test_the_number_of_unanswered_requests_is_bounded() -> None:
    with peer(until_closed) as addr, BlockingChannel(addr) as channel:
        for _ in range(OUTSTANDING_MAX):
            channel.post(1)
        with pytest.raises(TooManyRequests, match="1024 requests"):
            channel.post(1)


def test_a_port_on_which_nobody_listens_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        addr = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectFailed, match=f"no connection to {addr}"):
        BlockingChannel(addr)
    with pytest.raises(ConnectFailed, match="'nonsense' is not an address"):
        BlockingChannel("nonsense")


def test_a_peer_that_hangs_up_is_said_and_closes_the_channel() -> None:
    with peer(lambda connection: next(requests(connection)) and None) as addr:
        channel = BlockingChannel(addr)
        with pytest.raises(SendFailed, match=r"closed the connection|broke"):
            channel.call(1)
        assert not channel.is_open


@pytest.mark.parametrize(
    "noise",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"\0\0\0\x06\0\0\0\x02{]", b"\0\0\0\x06\x07\0\0\x02{}"],
)
def test_a_peer_that_speaks_something_else_closes_the_channel(noise: bytes) -> None:
    def speak(connection: socket.socket) -> None:
        connection.sendall(noise)
        until_closed(connection)

    with peer(speak) as addr:
        channel = BlockingChannel(addr)
        with pytest.raises(ProtocolError):
            channel.call(1)
        assert not channel.is_open
