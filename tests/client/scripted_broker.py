"""A broker and its name server in one, on a real socket, that answers by a script."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.model.topic import HALF_TOPIC
from cometmq.wire.bodies.heartbeat import decode_heartbeat
from cometmq.wire.bodies.lock import decode_lock_request, encode_locked
from cometmq.wire.bodies.name_lists import encode_consumer_list
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, request, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.offset import OffsetResponseHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from cometmq.wire.headers.transaction import CheckTransactionStateRequestHeader
from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.queue import MessageQueue

    Answer = Callable[[Command], Command | None]

TOPIC, BROKER = "scripted", "b0"
HOST = b"\x7f\0\0\1\0\0\0\1"


class _Connection(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker, self._decoder = broker, FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._broker.connections.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.remove(self._transport)
        self._broker.clients.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            command = Command.decode(frame)
            self._broker.received.append(command)
            if command.code == RequestCode.HEART_BEAT:
                self._broker.clients.add(self._transport)
            if not command.is_response:
                answer = self._broker.answers[command.code](command)
                if answer is not None and not command.is_oneway:
                    self._transport.write(answer.encode())


class ScriptedBroker:
    """Serves on a thread of its own; `answers` may be changed at any time.

    Out of the box: one topic with one queue, a group whose members are whoever sent a heartbeat,
    locks, sends, ends of transactions and send-backs that succeed, pulls that find nothing.
    """

    def __init__(self) -> None:
        self.received: list[Command] = []
        self.connections: list[asyncio.BaseTransport] = []
        self.clients: set[asyncio.BaseTransport] = set()
        self.members: list[str] = []
        self.refused_locks: set[MessageQueue] = set()
        self.committed = 0
        self.answers: dict[int, Answer] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.succeed,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.succeed,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.not_online,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.succeed,
            RequestCode.QUERY_CONSUMER_OFFSET: self.offset,
            RequestCode.PULL_MESSAGE: self.hold,
            RequestCode.SEND_MESSAGE_V2: self.stored,
            RequestCode.SEND_BATCH_MESSAGE: self.stored,
            RequestCode.END_TRANSACTION: self.succeed,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.succeed,
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(self._serve())
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.addr = f"127.0.0.1:{self.port}"

    def requests(self, code: int) -> list[Command]:
        """The requests of one code that were received."""
        return [command for command in list(self.received) if command.code == code]

    def send_request(self, command: Command) -> None:
        """Send a request to all clients that sent a heartbeat."""

        async def write() -> None:
            for connection in self.clients:
                connection.write(command.encode())

        self._do(write())

    def break_connections(self) -> None:
        """Break all connections."""

        async def abort() -> None:
            for connection in list(self.connections):
                connection.abort()

        self._do(abort())

    def close(self) -> None:
        """Stop serving."""

        async def stop() -> None:
            # What the loop has accepted becomes a connection first: else nobody closes its socket.
            while accepting := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(accepting)
            self._server.close()
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)

        self._do(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def succeed(self, command: Command) -> Command:
        return response(command.opaque, ResponseCode.SUCCESS)

    def route(self, command: Command) -> Command:
        broker = BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: self.addr})
        queues = QueueData(broker_name=BROKER, read_queue_nums=1, write_queue_nums=1, perm=6)
        route = TopicRouteData(broker_datas=(broker,), queue_datas=(queues,))
        return response(command.opaque, 0, body=encode_route(route, strict=True))

    def heartbeat(self, command: Command) -> Command:
        beat = decode_heartbeat(command.body)
        if beat.consumers and beat.client_id not in self.members:
            self.members.append(beat.client_id)
        return self.succeed(command)

    def consumer_list(self, command: Command) -> Command:
        return response(command.opaque, 0, body=encode_consumer_list(self.members))

    def not_online(self, command: Command) -> Command:
        return response(command.opaque, ResponseCode.SYSTEM_ERROR)

    def lock(self, command: Command) -> Command:
        wanted = set(decode_lock_request(command.body).queues) - self.refused_locks
        return response(command.opaque, 0, body=encode_locked(wanted))

    def offset(self, command: Command) -> Command:
        return response(command.opaque, 0, header=OffsetResponseHeader(offset=self.committed))

    def hold(self, command: Command) -> Command | None:
        return None  # held

    def stored(self, command: Command) -> Command:
        asked = SendMessageRequestHeaderV2.decode(command.ext)
        header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=asked.queue_id, queue_offset=0)
        return response(command.opaque, 0, header=header)

    async def _serve(self) -> asyncio.Server:
        return await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)

    def _do(self, coroutine):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


def record(
    offset: int,
    body: bytes = b"x",
    topic: str = TOPIC,
    properties: bytes = b"",
    phy_offset: int = 0,
) -> bytes:
    """A message of queue 0 as the broker has it in its log, by default a hundred bytes each."""
    at = phy_offset or offset * 100
    return stored.encode(topic, 0, 0, offset, at, 0, 1, HOST, 2, HOST, 0, 0, body, properties)


def check_back_request(msg_id: str, group: str = "g") -> Command:
    """A check-back: a broker asks a producer about a half message, the one at 99 in its log."""
    header = CheckTransactionStateRequestHeader(
        topic=HALF_TOPIC,
        tran_state_table_offset=3,
        commit_log_offset=99,
        msg_id=msg_id,
        transaction_id=msg_id,
        broker_name=BROKER,
    )
    pairs = f"UNIQ_KEY\x01{msg_id}\x02PGROUP\x01{group}\x02TRAN_MSG\x01true\x02"
    half = record(7, b"half", properties=pairs.encode(), phy_offset=99)
    return request(RequestCode.CHECK_TRANSACTION_STATE, 5, header, half, oneway=True)


def pull_response(
    command: Command, records: list[bytes], next_offset: int | None = None
) -> Command:
    """The response to a pull: these records, or NOT_FOUND without any."""
    asked = PullMessageRequestHeader.decode(command.ext)
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=asked.queue_offset + len(records) if next_offset is None else next_offset,
        min_offset=0,
        max_offset=1_000_000,
    )
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
    return response(command.opaque, code, header=header, body=b"".join(records))
