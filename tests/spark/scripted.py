"""A scripted on a real socket that answers as a name server and a broker would, from a script.

For what a real broker does rarely or never on request: short answers, queues cut short at either
end, connections that break in the middle of a range.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cometmq.errors import CometError
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.rules.filters.tag_expressions import split_expression
from cometmq.spark.source import source_options as options
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.offset import OffsetResponseHeader, SearchOffsetRequestHeader
from cometmq.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from types import TracebackType

    from cometmq.spark.source.source_options import SourceOptions

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
BORN_MS = 1_700_000_000_000


def record(
    queue_id: int,
    offset: int,
    *,
    topic: str = "T",
    body: bytes = b"hello",
    pairs: dict[str, str] | None = None,
    sys_flag: int = 0,
    born_host: bytes = HOST,
    store_host: bytes = HOST,
    with_crc: bool = True,
    raw: bytes | None = None,
) -> bytes:
    """One stored record with times that follow from its offset."""
    text = properties.encode(pairs or {}) if raw is None else raw
    return stored.encode(
        topic,
        queue_id,
        0,
        offset,
        offset * 1000 + queue_id,
        sys_flag,
        BORN_MS + offset,
        born_host,
        BORN_MS + 7 + offset,
        store_host,
        0,
        0,
        body,
        text,
        with_crc,
    )


@dataclass
class Script:
    """What the scripted holds and how it behaves."""

    topic: str = "T"
    broker: str = "broker-a"
    queues: dict[int, list[bytes]] = field(default_factory=dict)
    earliest_offsets: dict[int, int] = field(default_factory=dict)
    tags: dict[tuple[int, int], str] = field(default_factory=dict)
    pull_max: int = 32
    scan_max: int = 800
    perm: int = 6
    break_after_pulls: int = 0
    pulls: int = 0
    codes: list[int] = field(default_factory=list)

    def fill(self, queue_id: int, count: int, *, body: bytes = b"hello") -> Script:
        kept = self.queues.setdefault(queue_id, [])
        for offset in range(len(kept), len(kept) + count):
            tag = self.tags.get((queue_id, offset), "even" if offset % 2 == 0 else "odd")
            kept.append(record(queue_id, offset, topic=self.topic, body=body, pairs={"TAGS": tag}))
            self.tags[queue_id, offset] = tag
        return self


class ScriptedBroker:
    """The server: one thread accepts, one thread a connection; `with` starts and stops it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def options(self, **more: str) -> SourceOptions:
        given = {"namesrv": self.addr, "topic": self.script.topic, "retryForMs": "5000"}
        return options.parse({**given, **more})

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def hang_up(self) -> None:
        """Break every connection there is."""
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with connection:
            while True:
                try:
                    chunk = connection.recv(65536)
                except OSError:
                    return
                if not chunk:
                    return
                for frame in decoder.feed(chunk):
                    answer = self._answer(Command.decode(frame))
                    if answer is None:
                        return
                    try:
                        connection.sendall(answer.encode())
                    except OSError:
                        return

    def _answer(self, asked: Command) -> Command | None:
        script = self.script
        script.codes.append(asked.code)
        if asked.ext.get("topic") != script.topic:
            return response(asked.opaque, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        if asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return response(asked.opaque, 0, body=encode_route(self._route()))
        queue_id = int(asked.ext["queueId"])
        if asked.code == RequestCode.PULL_MESSAGE:
            script.pulls += 1
            if script.break_after_pulls and script.pulls % script.break_after_pulls == 0:
                return None
            return self._pull(asked, queue_id)
        offset = {
            RequestCode.GET_MAX_OFFSET: lambda: len(script.queues[queue_id]),
            RequestCode.GET_MIN_OFFSET: lambda: script.earliest_offsets.get(queue_id, 0),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda: self._search(asked, queue_id),
        }[RequestCode(asked.code)]()
        return response(asked.opaque, 0, header=OffsetResponseHeader(offset=offset))

    def _route(self) -> TopicRouteData:
        script = self.script
        return TopicRouteData(
            broker_datas=(
                BrokerData(cluster="c", broker_name=script.broker, broker_addrs={0: self.addr}),
            ),
            queue_datas=(
                QueueData(
                    broker_name=script.broker,
                    read_queue_nums=len(script.queues),
                    write_queue_nums=len(script.queues),
                    perm=script.perm,
                ),
            ),
        )

    def _search(self, asked: Command, queue_id: int) -> int:
        at_ms = SearchOffsetRequestHeader.decode(asked.ext).timestamp
        count = len(self.script.queues[queue_id])
        return min(max(at_ms - BORN_MS - 7, self.script.earliest_offsets.get(queue_id, 0)), count)

    def _pull(self, asked: Command, queue_id: int) -> Command:
        script, header = self.script, PullMessageRequestHeader.decode(asked.ext)
        assert header.sys_flag == 4
        kept, low = script.queues[queue_id], script.earliest_offsets.get(queue_id, 0)
        at, wanted = header.queue_offset, set(split_expression(header.subscription))
        code, body, after = ResponseCode.SUCCESS, [], at
        if not low <= at <= len(kept):
            code, after = ResponseCode.PULL_OFFSET_MOVED, low if at < low else len(kept)
        elif at == len(kept):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            most = min(header.max_msg_nums, script.pull_max)
            while after < min(len(kept), at + script.scan_max) and len(body) < most:
                if not wanted or script.tags[queue_id, after] in wanted:
                    body.append(kept[after])
                after += 1
            code = code if body else ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=after,
            min_offset=low,
            max_offset=len(kept),
        )
        return response(asked.opaque, code, header=fields, body=b"".join(body))


def error_of(action: object) -> str:
    """The sentence of the error that the call raises."""
    try:
        action()  # type: ignore[operator]
    except CometError as error:
        return str(error)
    raise AssertionError("no error was raised")
