"""One connection and the pool of them, against real sockets that misbehave."""

import asyncio
import math
import socket

import pytest

from cometmq.errors import (
    ClientStopped,
    ConnectFailed,
    ProtocolError,
    RemotingTimeout,
    SendFailed,
    TooManyRequests,
)
from cometmq.net import channel as channels
from cometmq.net.channel import Channel, connect
from cometmq.net.channel_pool import ChannelPool
from cometmq.wire.command import Command, request, response
from cometmq.wire.frame import FrameDecoder


class Peer(asyncio.Protocol):
    """Answers each request by `answer`, which gets the command and the connection."""

    def __init__(self, answer):
        self.answer, self.decoder, self.responses = answer, FrameDecoder(), []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for frame in self.decoder.feed(data):
            command = Command.decode(frame)
            if command.is_response:
                self.responses.append(command)
            else:
                self.answer(command, self)

    def send(self, command):
        self.transport.write(command.encode())


def addr_of(server):
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def echo(command, peer):
    if not command.is_oneway:
        peer.send(response(command.opaque, 0, body=command.body))


class Listening:
    """A server for one test; `peers` are the accepted connections."""

    def __init__(self, answer=echo):
        self.answer, self.peers = answer, []

    def _accept(self):
        self.peers.append(Peer(self.answer))
        return self.peers[-1]

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self._accept, "127.0.0.1", 0)
        self.addr = addr_of(self.server)
        return self

    async def __aexit__(self, *exc):
        self.server.close()
        for peer in self.peers:
            peer.transport.abort()


def run(scenario):
    async def bounded():
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def test_answers_find_their_callers_in_whatever_order_they_come():
    held = []

    def backwards(command, peer):
        held.append(command)
        if len(held) == 100:
            for one in reversed(held):
                echo(one, peer)

    async def scenario():
        async with Listening(backwards) as listening:
            channel = await connect(listening.addr)
            calls = [channel.call(request(1, 0, body=b"%d" % n), 5) for n in range(100)]
            answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(100)]
            channel.close()

    run(scenario)


def test_requests_of_one_loop_iteration_leave_in_one_write_and_in_order():
    chunks = []

    class Chunked(Peer):
        def data_received(self, data):
            chunks.append(data)
            super().data_received(data)

    async def scenario():
        async with Listening() as listening:
            listening._accept = lambda: listening.peers.append(Chunked(echo)) or listening.peers[-1]
            loop = asyncio.get_running_loop()
            server = await loop.create_server(listening._accept, "127.0.0.1", 0)
            addr = addr_of(server)
            channel = await connect(addr)
            await asyncio.gather(*(channel.call(request(1, 0), 5) for _ in range(50)))
            assert len(chunks) == 1
            channel.close()
            server.close()

    run(scenario)


def test_many_sends_of_one_loop_iteration_begin_to_leave_before_it_is_over_and_in_order():
    frames = [request(1, opaque, body=b"%d" % opaque).encode() for opaque in range(1, 81)]

    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            channel = await connect(f"127.0.0.1:{server.getsockname()[1]}")
            peer, _ = server.accept()
            peer.settimeout(10)
            for opaque, frame in enumerate(frames, 1):
                channel.send_frame(opaque, (frame[:4], frame[4:8], frame[8:]), math.inf)
            early = b"".join(frames[:64])
            assert read(peer, len(early)) == early
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
            await asyncio.sleep(0)
            peer.settimeout(10)
            late = b"".join(frames[64:])
            assert read(peer, len(late)) == late
            channel.close()
            peer.close()

    run(scenario)


def read(peer, count):
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


def test_a_large_answer_is_read_where_it_lies_and_errors_of_the_reader_reach_the_caller():
    def read(answer, body):
        assert answer.body == b""
        if len(body) == 3:
            raise ProtocolError("three bytes are too few")
        return bytes(body[:2]), len(body), answer.code

    async def scenario():
        async with Listening() as listening:
            channel = await connect(listening.addr)
            calls = [
                channel.call_with_reader(request(1, 0, body=b"%d" % n * size), 5, read)
                for n, size in enumerate((200_000, 2, 100, 300_000))
            ]
            plain = channel.call(request(1, 0, body=b"plain"), 5)
            *found, last = await asyncio.gather(*calls, plain)
            assert found == [
                (b"00", 200_000, 0),
                (b"11", 2, 0),
                (b"22", 100, 0),
                (b"33", 300_000, 0),
            ]
            assert last.body == b"plain"
            with pytest.raises(ProtocolError, match="three bytes"):
                await channel.call_with_reader(request(1, 0, body=b"abc"), 5, read)
            assert (await channel.call(request(1, 0, body=b"on"), 5)).body == b"on"
            channel.close()

    run(scenario)


def test_an_answer_to_be_read_that_is_late_or_never_comes_is_an_error():
    held = []

    async def scenario():
        async with Listening(lambda command, peer: held.append((command, peer))) as listening:
            channel, read = await connect(listening.addr), []
            with pytest.raises(RemotingTimeout):
                await channel.call_with_reader(
                    request(1, 0), 0.05, lambda *answer: read.append(answer)
                )
            echo(*held[0])  # late: nobody reads it
            waiting = asyncio.ensure_future(
                channel.call_with_reader(request(1, 0), 5, lambda *_: None)
            )
            while len(held) < 2:
                await asyncio.sleep(0.01)
            listening.peers[0].transport.abort()
            with pytest.raises(SendFailed):
                await waiting
            with pytest.raises(SendFailed):
                await channel.call_with_reader(request(1, 0), 5, lambda *_: None)
            assert not read

    run(scenario)


def test_an_answer_in_many_small_pieces_is_put_together():
    async def scenario():
        def slowly(command, peer):
            frame = response(command.opaque, 0, body=b"x" * 1000).encode()

            async def drip():
                for at in range(0, len(frame), 100):
                    peer.transport.write(frame[at : at + 100])
                    await asyncio.sleep(0)

            peer.task = asyncio.get_running_loop().create_task(drip())

        async with Listening(slowly) as listening:
            channel = await connect(listening.addr)
            assert (await channel.call(request(1, 0), 5)).body == b"x" * 1000
            channel.close()

    run(scenario)


def test_a_call_without_answer_ends_at_its_deadline_and_leaves_the_others_alone():
    def one_of_two(command, peer):
        if command.body == b"answer":
            echo(command, peer)

    async def scenario():
        async with Listening(one_of_two) as listening:
            channel = await connect(listening.addr)
            with pytest.raises(RemotingTimeout, match=listening.addr):
                await channel.call(request(1, 0, body=b"ignore"), 0.1)
            assert (await channel.call(request(1, 0, body=b"answer"), 5)).body == b"answer"
            assert channel._waiting == {}
            channel.close()

    run(scenario)


def test_a_late_answer_is_dropped():
    async def scenario():
        late = []
        async with Listening(lambda command, peer: late.append((command, peer))) as listening:
            channel = await connect(listening.addr)
            with pytest.raises(RemotingTimeout):
                await channel.call(request(1, 0, body=b"old"), 0.05)
            ((command, peer),) = late
            peer.answer = echo
            echo(command, peer)
            assert (await channel.call(request(1, 0, body=b"new"), 5)).body == b"new"
            channel.close()

    run(scenario)


def test_all_calls_fail_at_once_when_the_connection_breaks():
    async def scenario():
        async with Listening(lambda command, peer: None) as listening:
            channel = await connect(listening.addr)
            calls = [channel.call_nowait(request(1, 0)) for _ in range(10)]
            while not listening.peers:
                await asyncio.sleep(0.001)
            listening.peers[0].transport.abort()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, SendFailed) for result in results)
            assert not channel.is_open
            with pytest.raises(SendFailed):
                channel.call_nowait(request(1, 0))
            with pytest.raises(SendFailed):
                channel.oneway(request(1, 0, oneway=True))

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        b"\0\0\0\x0a\0\0\0\x06no-jso",
        b"\0\0\0\x0a\x07\0\0\x06binary",
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection(garbage):
    async def scenario():
        async with Listening(lambda command, peer: peer.transport.write(garbage)) as listening:
            channel = await connect(listening.addr)
            with pytest.raises(SendFailed, match="broke the protocol"):
                await channel.call(request(1, 0), 5)
            assert not channel.is_open

    run(scenario)


def test_requests_of_the_peer_reach_the_listener_and_can_be_answered():
    async def scenario():
        asked = []

        def listen(command, channel):
            asked.append(command.code)
            channel.answer(response(command.opaque, 0, body=b"mine"))

        async with Listening() as listening:
            channel = await connect(listening.addr, on_request=listen)
            refusing = await connect(listening.addr)
            await channel.call(request(1, 0), 5)
            await refusing.call(request(1, 0), 5)
            first, second = listening.peers
            first.send(request(40, 5))
            second.send(request(40, 6))
            second.send(request(41, 7, oneway=True))
            while not (first.responses and second.responses):
                await asyncio.sleep(0.01)
            await refusing.call(request(1, 0), 5)
            assert asked == [40]
            assert [(r.opaque, r.code, r.body) for r in first.responses] == [(5, 0, b"mine")]
            assert [(r.opaque, r.code) for r in second.responses] == [(6, 3)]
            channel.close()
            refusing.close()

    run(scenario)


def test_open_calls_and_unread_bytes_are_bounded(monkeypatch):
    monkeypatch.setattr(channels, "PENDING_MAX", 5)
    monkeypatch.setattr(channels, "UNSENT_BYTES_MAX", 1_000_000)

    async def scenario():
        async with Listening(lambda command, peer: None) as listening:
            channel = await connect(listening.addr)
            calls = [channel.call_nowait(request(1, 0)) for _ in range(5)]
            with pytest.raises(TooManyRequests):
                channel.call_nowait(request(1, 0))
            while not listening.peers:
                await asyncio.sleep(0.01)
            listening.peers[0].transport.pause_reading()

            async def flood():
                for _ in range(200):
                    channel.oneway(request(1, 0, body=b"x" * 100_000, oneway=True))
                    await asyncio.sleep(0)

            with pytest.raises(TooManyRequests, match="does not read"):
                await flood()
            channel.close()
            await asyncio.gather(*calls, return_exceptions=True)

    run(scenario)


@pytest.mark.parametrize("addr", ["nowhere", "host:", ":1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused_with_a_sentence(addr):
    async def scenario():
        with pytest.raises(ConnectFailed, match="host:port"):
            await connect(addr)

    run(scenario)


def unused_addr():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_pool_has_one_connection_per_address_whoever_asks():
    async def scenario():
        async with Listening() as listening:
            pool = ChannelPool()
            found = await asyncio.gather(*(pool.channel(listening.addr) for _ in range(20)))
            assert len({id(channel) for channel in found}) == 1
            assert pool.open_channel(listening.addr) is found[0]
            assert pool.open_channels() == [found[0]]
            await pool.close()
            assert not found[0].is_open
            with pytest.raises(ClientStopped):
                await pool.channel(listening.addr)

    run(scenario)


def test_a_pool_that_is_closed_while_it_connects_says_so_and_cancels_nobody():
    async def scenario():
        async with Listening() as listening:
            pool = ChannelPool()
            attempt = asyncio.create_task(pool.channel(listening.addr))
            await asyncio.sleep(0)  # the attempt has begun
            await pool.close()
            with pytest.raises(ClientStopped):
                await attempt

    run(scenario)


def test_a_pool_connects_again_calls_its_hook_first_and_reports_the_lost_connection():
    async def scenario():
        received, greeted, lost = [], [], []

        def note(command, peer):
            received.append(command.code)
            echo(command, peer)

        def greet(channel: Channel):
            greeted.append(channel.addr)
            channel.oneway(request(34, 0, oneway=True))

        async with Listening(note) as listening:
            pool = ChannelPool(greet=greet, on_lost=lost.append)
            first = await pool.channel(listening.addr)
            await first.call(request(1, 0), 5)
            listening.peers[0].transport.abort()
            await first.wait_closed()
            second = await pool.channel(listening.addr)
            await second.call(request(2, 0), 5)
            assert received == [34, 1, 34, 2]
            assert (greeted, lost) == ([listening.addr] * 2, [listening.addr])
            await pool.close()
            await asyncio.sleep(0)
            assert lost == [listening.addr]  # closing on purpose is no loss

    run(scenario)


def test_a_pool_rests_after_a_failed_connect_then_tries_again():
    async def scenario():
        addr = unused_addr()
        pool = ChannelPool()
        for _ in range(50):  # at once: only the first one really tries
            with pytest.raises(ConnectFailed, match=addr):
                await pool.channel(addr)
        loop = asyncio.get_running_loop()
        host, port = addr.split(":")
        server = await loop.create_server(lambda: Peer(echo), host, int(port))
        while True:
            try:
                channel = await pool.channel(addr)
                break
            except ConnectFailed:
                await asyncio.sleep(0.01)
        assert (await channel.call(request(1, 0, body=b"back"), 5)).body == b"back"
        await pool.close()
        server.close()

    run(scenario)


@pytest.mark.parametrize("host", ["a..b", "x" * 80, "nul\0host"])
def test_a_name_that_cannot_even_be_asked_for_is_no_connection(host):
    with pytest.raises(ConnectFailed, match="no connection to"):
        asyncio.run(connect(f"{host}:9876"))
