"""A broker and its name server on a real socket, which answer as a script says.

For what a real broker does rarely or never on request: short answers, queues cut short at either
end, connections that break in the middle of a range.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cometmq.errors import CometError
from cometmq.model.admin_stats import TopicOffset
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.rules.filters.tag_expressions import split_expression
from cometmq.spark.source import cluster_client as clusters
from cometmq.spark.source import source_options as options
from cometmq.wire.bodies.admin import encode_topic_stats
from cometmq.wire.bodies.name_lists import encode_topic_list
from cometmq.wire.bodies.route import encode_cluster_info, encode_route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.headers.offset import (
    GetEarliestMsgStoretimeResponseHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)
from cometmq.wire.headers.pull import (
    SUBSCRIPTION,
    SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
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
    later_ms: int = 0,
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
        BORN_MS + 7 + offset + later_ms,
        store_host,
        0,
        0,
        body,
        text,
        with_crc,
    )


@dataclass
class Script:
    """What the broker holds and how it behaves."""

    topic: str = "T"
    broker: str = "broker-a"
    queues: dict[int, list[bytes]] = field(default_factory=dict)
    earliest_offsets: dict[int, int] = field(default_factory=dict)
    tags: dict[tuple[int, int], str] = field(default_factory=dict)
    stored_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    pull_max: int = 32
    scan_max: int = 800
    removed: dict[int, int] = field(default_factory=dict)
    """Records below are gone, and the index of the queue doesn't show it yet, as with Apache's."""
    removal: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Once an answer has come to the first offset, records below the second are gone."""
    damaged: set[tuple[int, int]] = field(default_factory=set)
    perm: int = 6
    break_after_pulls: int = 0
    pulls: int = 0
    codes: list[int] = field(default_factory=list)
    expressions: set[tuple[str | None, str | None]] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)
    beyond: dict[int, list[bytes]] = field(default_factory=dict)
    registered: bool = True
    breaks: bool = False
    ends_holds: bool = False
    holds_sends: bool = False
    sends: int = 0
    stored_later_ms: int = 0
    peers: list[ScriptedBroker] = field(default_factory=list)

    def fill(self, queue_id: int, count: int, *, body: bytes = b"hello") -> Script:
        kept = self.queues.setdefault(queue_id, [])
        for offset in range(len(kept), len(kept) + count):
            tag = self.tags.get((queue_id, offset), "even" if offset % 2 == 0 else "odd")
            later_ms = self.stored_later_ms
            kept.append(
                record(
                    queue_id,
                    offset,
                    topic=self.topic,
                    body=body,
                    pairs={"TAGS": tag},
                    later_ms=later_ms,
                )
            )
            self.stored_ms[queue_id, offset] = BORN_MS + 7 + offset + later_ms
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
        given = {"namesrv": self.addr, "retryForMs": "5000", **more}
        if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
            given.setdefault("topic", self.script.topic)
        return options.parse(given)

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

    def go_away(self) -> None:
        """Be forgotten by the name server, and by every client of this process."""
        self.script.registered = False
        forget_clients()

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
        held: list[Command] = []
        connection.settimeout(0.01)
        with connection:
            while True:
                try:
                    chunk = connection.recv(65536)
                except TimeoutError:
                    chunk = None
                except OSError:
                    return
                if chunk == b"":
                    return
                asked = [Command.decode(frame) for frame in decoder.feed(chunk or b"")]
                waiting, held = [*held, *asked], []
                commits = [one for one in asked if one.code == RequestCode.UPDATE_CONSUMER_OFFSET]
                began = bool(self.script.committed)
                for one in waiting:
                    if self._holds(one):
                        held.append(one)
                        continue
                    answer = self._answer(one)
                    if answer is None:
                        return
                    try:
                        connection.sendall(answer.encode())
                    except OSError:
                        return
                if commits and not began:  # Apache's broker keeps one of those that came at once
                    self.script.committed = dict([*self.script.committed.items()][-1:])

    def _holds(self, asked: Command) -> bool:
        """Whether this is a pull that waits at the end of its queue, or a send that is to wait."""
        if asked.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}:
            self.script.sends += 1
            return self.script.holds_sends
        if asked.code != RequestCode.PULL_MESSAGE or not int(asked.ext["sysFlag"]) & SUSPEND:
            return False
        kept = self.script.queues.get(int(asked.ext["queueId"]), ())
        return len(kept) == int(asked.ext["queueOffset"]) and not self.script.ends_holds

    def _answer(self, asked: Command) -> Command | None:
        script = self.script
        script.codes.append(asked.code)
        if script.breaks:
            script.registered = False
            return None
        if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return response(asked.opaque, 0, body=encode_cluster_info(self._cluster()))
        if asked.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            names = {one.script.topic for one in self._registered()}
            return response(asked.opaque, 0, body=encode_topic_list([*sorted(names), "TBW102"]))
        if asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = self._route(asked.ext["topic"])
            if route is None:
                return response(asked.opaque, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
            return response(asked.opaque, 0, body=encode_route(route))
        if asked.ext.get("topic") != script.topic:
            return response(asked.opaque, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        if asked.code == RequestCode.GET_TOPIC_STATS_INFO:
            return response(asked.opaque, 0, body=encode_topic_stats(self._stats()))
        return self._answer_about_a_queue(asked, int(asked.ext["queueId"]))

    def _answer_about_a_queue(self, asked: Command, queue_id: int) -> Command | None:
        script = self.script
        if asked.code == RequestCode.PULL_MESSAGE:
            script.pulls += 1
            if script.break_after_pulls and script.pulls % script.break_after_pulls == 0:
                return None
            return self._pull(asked, queue_id)
        if asked.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            first = script.earliest_offsets.get(queue_id, 0)
            gone = first < script.removed.get(queue_id, 0)
            stored = GetEarliestMsgStoretimeResponseHeader(
                timestamp=-1 if gone else script.stored_ms.get((queue_id, first), -1)
            )
            return response(asked.opaque, 0, header=stored)
        if asked.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            script.committed[queue_id] = int(asked.ext["commitOffset"])
            return response(asked.opaque, 0)
        offset = {
            RequestCode.GET_MAX_OFFSET: lambda: len(script.beyond.get(queue_id, ())),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda: self._search(asked, queue_id),
        }[RequestCode(asked.code)]()
        return response(asked.opaque, 0, header=OffsetResponseHeader(offset=offset))

    def _registered(self) -> list[ScriptedBroker]:
        return [one for one in (self, *self.script.peers) if one.script.registered]

    def _cluster(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={one.script.broker: one._data() for one in self._registered()}
        )

    def _data(self) -> BrokerData:
        return BrokerData(cluster="c", broker_name=self.script.broker, broker_addrs={0: self.addr})

    def _route(self, topic: str) -> TopicRouteData | None:
        having = [one for one in self._registered() if one.script.topic == topic]
        if not having:
            return None
        return TopicRouteData(
            broker_datas=tuple(one._data() for one in having),
            queue_datas=tuple(
                QueueData(
                    broker_name=one.script.broker,
                    read_queue_nums=len(one.script.queues),
                    write_queue_nums=len(one.script.queues),
                    perm=one.script.perm,
                )
                for one in having
            ),
        )

    def _stats(self) -> dict[MessageQueue, TopicOffset]:
        script = self.script
        return {
            MessageQueue(script.topic, script.broker, queue_id): TopicOffset(
                min_offset=script.earliest_offsets.get(queue_id, 0),
                max_offset=len(kept),
                last_update_timestamp=script.stored_ms.get((queue_id, len(kept) - 1), 0),
            )
            for queue_id, kept in script.queues.items()
        }

    def _search(self, asked: Command, queue_id: int) -> int:
        at_ms = SearchOffsetRequestHeader.decode(asked.ext).timestamp
        count = len(self.script.queues[queue_id])
        low = self.script.earliest_offsets.get(queue_id, 0)
        return min(max(at_ms - BORN_MS - 7 - self.script.stored_later_ms, low), count)

    def _pull(self, asked: Command, queue_id: int) -> Command:
        script, header = self.script, PullMessageRequestHeader.decode(asked.ext)
        assert header.sys_flag & ~SUSPEND == SUBSCRIPTION
        script.expressions.add((header.expression_type, header.subscription))
        kept, low = script.queues.get(queue_id, []), script.earliest_offsets.get(queue_id, 0)
        at, wanted = header.queue_offset, set(split_expression(header.subscription))
        removed = script.removed.get(queue_id, 0)
        code, body, after, remark = ResponseCode.SUCCESS, [], at, ""
        if not low <= at <= len(kept):
            code, after = ResponseCode.PULL_OFFSET_MOVED, low if at < low else len(kept)
        elif at == len(kept):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            most = min(header.max_msg_nums, script.pull_max)
            while after < min(len(kept), at + script.scan_max) and len(body) < most:
                if after == script.removal.get(queue_id, (-1, 0))[0]:
                    removed = script.removed[queue_id] = script.removal[queue_id][1]
                if not wanted or script.tags[queue_id, after] in wanted:
                    if after < removed or (queue_id, after) in script.damaged:
                        remark = "MESSAGE_WAS_REMOVING"
                    else:
                        body.append(kept[after])
                after += 1
            code = code if body else ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=after,
            min_offset=low,
            max_offset=len(kept),
        )
        return response(
            asked.opaque, code, header=fields, body=b"".join(body), remark="" if body else remark
        )


def forget_clients() -> None:
    """Close what readers of this process have open, as if each ran in a new process."""
    for one in clusters._clients.values():
        one.reset()
    clusters._clients.clear()


def error_of(action: object) -> str:
    """The sentence of the error that the call raises."""
    try:
        action()  # type: ignore[operator]
    except CometError as error:
        return str(error)
    raise AssertionError("no error was raised")
