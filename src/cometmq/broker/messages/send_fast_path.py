"""Hot. The short way of a send whose header was seen before: no JSON, no objects, one put.

Owns what is decided once for all sends of one header layout, and forgets it when any topic changes.
Whatever is out of the ordinary (a delay, a transaction, a retry topic, a batch, a one-way send, any
refusal) is left to `broker/messages/send`, whose checks are used here to decide.
Invariant: a send taken here is stored and answered exactly as `broker/messages/send` would have.
Java: none.
"""

from __future__ import annotations

import json
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from cometmq.broker.messages.pull_fast_path import Puller
from cometmq.broker.messages.status_codes import PUT_STATUS_CODES, PUT_STATUS_REMARKS
from cometmq.broker.messages.tag_codes import tags_code_of
from cometmq.errors import Reject
from cometmq.model import topic as names
from cometmq.store.results import PutStatus
from cometmq.wire import sysflag
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import VERSION, Command
from cometmq.wire.frame import JSON, Frame, encode_frame
from cometmq.wire.send_template import SendFields, SendTemplates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.messages.pull import PullHandler
    from cometmq.broker.messages.send import SendHandler
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.metrics.traffic import TrafficCounter
    from cometmq.net.admission import FastPathAdmission
    from cometmq.net.connection import Connection
    from cometmq.settings.broker import BrokerSettings
    from cometmq.store.log.record_template import RecordPositions
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.send_run import SendRun
    from cometmq.wire.send_template import SendLayout

    PutRun = Callable[[list[int], list[int], Sequence[bytes], list[bytes], int], RecordPositions]
    Put = Callable[[int, int, bytes, bytes, int], tuple[int, int, int] | None]

QUEUES_MAX = 1024
"""Sends to topics with more queues take the long way."""

_HEAD = Struct(">II")
_unpack_head = _HEAD.unpack_from
_PREFIXES = [_HEAD.pack(length + 4, length) for length in range(8192)]
"""What stands before a header of so many bytes."""
_UNIQUE_MAX, _REGION_MAX = 4096, 2048
_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
_MARK = b"7E57AB1E%04d"
_ANSWER = (
    b'{"code":0,"extFields":{"msgId":"%b%%016X","queueId":"%%d","queueOffset":"%%d",'
    b'"transactionId":"%%b","MSG_REGION":"%b","TRACE_ON":"true"},"flag":1,"language":"PYTHON",'
    b'"opaque":%%b,"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_LONG_WAY_KEYS = frozenset(
    (
        *(b"DELAY", b"TRAN_MSG", b"INNER_NUM", b"POP_CK", b"MSG_REGION", b"CLUSTER"),
        *(b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC", b"TIMER_DEL_UNIQKEY"),
    )
)
"""Properties that ask for more than storing them; so do those that begin with two underscores."""


class Plan:
    """What is decided once for a header layout; `put` is None where sends take the long way."""

    __slots__ = ("answer", "code", "counter", "put", "put_run", "queue_count", "raw", "unique_at")

    def __init__(self, queue_count: int, counter: TrafficCounter) -> None:
        self.queue_count, self.counter = queue_count, counter
        self.put: Put | None = None
        self.put_run: PutRun | None = None
        """For many at a time; None where each must be looked at."""
        self.raw = self.answer = b""
        """The properties as they are stored and the answer, both to be filled in by `%`."""
        self.code, self.unique_at = 0, -1

    def answers(self, run: SendRun, places: RecordPositions) -> list[bytes]:
        """The answers to as many sends of a run as were put.

        Measured: one `%` for all of them gains nothing, its arguments must be laid out first.
        """
        texts, answer = run.texts[self.unique_at], self.answer
        columns = places.phy_offsets, run.queue_ids, places.queue_offsets, texts, run.opaques
        made = [answer % row for row in zip(*columns, strict=False)]
        return [_PREFIXES[len(one)] + one for one in made]


class Sender:
    """One connection's sends: what it has learned, and its answers of this turn; and its pulls."""

    __slots__ = (
        "_answers",
        "_connection",
        "_generation",
        "_puller",
        "_shared",
        "_templates",
        "_turn",
    )

    def __init__(self, shared: FastSend, connection: Connection) -> None:
        self._shared, self._connection = shared, connection
        self._puller = Puller(shared.pulls, connection)
        self._generation, self._turn = shared.generation, -1
        self._templates = SendTemplates()
        self._answers: list[bytes] = []

    def chunk(self, data: bytes) -> int:  # noqa: C901 - one loop, measured: a call is 0.1 us
        """Take the frames at the head of a chunk while they are ordinary; bytes taken."""
        shared = self._shared
        if self._generation != shared.generation:
            self._generation = shared.generation
            self._templates.forget()
            if shared.admission is not None:  # its rules may have changed
                self._puller.forget()
        body_max, match_at = shared.body_max, self._templates.match_at
        answers = self._answers if shared.store.batch_number == self._turn else None
        at, size, may_run = 0, len(data), True
        while size - at >= 8:
            total, length = _unpack_head(data, at)  # a length below 2^24 says JSON as well
            body_at, end = at + 8 + length, at + 4 + total
            if end > size or not body_at < end <= body_at + body_max:
                if end != body_at or end > size or not self._puller.take(data, at + 8, length):
                    break
                at = end
                continue
            fields = match_at(data, at + 8, length)
            if fields is None:
                break
            layout, queue_id, born_ms, opaque, texts = fields
            plan: Plan = layout.plan or shared.plan(layout, self._connection)
            put = plan.put
            if put is None or queue_id >= plan.queue_count:
                break
            if plan.unique_at >= 0:
                raw, code, unique = plan.raw % texts, plan.code, texts[plan.unique_at]
            elif found := shared.complete(texts[0]):
                raw, code, unique = found
            else:
                break
            if answers is None and (answers := self._begin()) is None:
                break
            placed = put(queue_id, born_ms, data[body_at:end], raw, code)
            if placed is None:
                break
            phy_offset, queue_offset, bytes_stored = placed
            answer = plan.answer % (phy_offset, queue_id, queue_offset, unique, opaque)
            answers.append(_PREFIXES[len(answer)] + answer)
            if shared.is_sync:
                self._connection.begin_request()
            counter = plan.counter
            counter.count += 1
            counter.bytes += bytes_stored
            at = end
            if may_run and size - at > 2 * length:
                at = self._run(data, end, answers)
                may_run = at > end
        return at

    def _run(self, data: bytes, at: int, answers: list[bytes]) -> int:
        """Take the sends that look like the last one taken, together; where they end."""
        shared = self._shared
        run = self._templates.run_at(data, at, shared.body_max)
        if run is None:
            return at
        plan: Plan | None = run.layout.plan
        if plan is None or plan.put_run is None or max(run.queue_ids) >= plan.queue_count:
            return at
        raws = [plan.raw % texts for texts in zip(*run.texts, strict=True)]
        places = plan.put_run(run.queue_ids, run.born, run.bodies, raws, plan.code)
        count = len(places.phy_offsets)
        if not count:
            return at
        if shared.is_sync:
            self._connection.begin_request(count)
        answers += plan.answers(run, places)
        plan.counter.count += count
        plan.counter.bytes += places.size
        return run.ends[count - 1]

    def frame(self, frame: Frame) -> bool:
        """Take one frame if it is an ordinary send of a known layout; learn its layout if not.

        A pull is only learned: had it been one to be taken, `chunk` would have.
        """
        kind, header, body = frame
        admission = self._shared.admission
        if admission is not None and not admission.may_learn(frame, self._connection):
            return False
        if kind == JSON and not body:
            self._puller.see(header)
            return False
        if kind != JSON or self._templates.see(header) is None:
            return False
        return self.chunk(encode_frame(header, body)) > 0

    def _begin(self) -> list[bytes] | None:
        """Begin the answers of a turn; None when too many requests are open."""
        connection, shared = self._connection, self._shared
        if shared.is_sync and connection.is_full:  # else no answer outlives the turn
            return None
        self._turn, self._answers = shared.store.batch_number, []
        shared.join(connection, self._answers)
        return self._answers


class FastSend:
    """What the senders of one broker share. Called with a connection, it makes its sender."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        send: SendHandler,
        pulls: PullHandler,
        stats: BrokerStats,
        settings: BrokerSettings,
        admission: FastPathAdmission | None = None,
    ) -> None:
        self.admission = admission
        """Asked before a header is learned; what was learned is admitted until `forget`."""
        self.store, self._topics, self._send, self._stats = store, topics, send, stats
        self.pulls = pulls
        self.is_sync = store.is_sync
        self.body_max = settings.max_message_size
        self.generation = 0
        """Grows when any topic changes: what was decided before is void."""
        self._region = _escaped(settings.region_id)
        self._turn = -1
        self._group: list[tuple[Connection, list[bytes]]] = []
        topics.on_change.append(lambda _topic: self.forget())

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self.body_max = settings.max_message_size
        self.generation += 1

    def __call__(self, connection: Connection) -> Sender:
        """Make the sender of a new connection."""
        return Sender(self, connection)

    def join(self, connection: Connection, answers: list[bytes]) -> None:
        """Have the answers, which grow until the turn ends, delivered once the sends are safe."""
        store = self.store
        if store.batch_number != self._turn:
            self._turn, self._group = store.batch_number, []
            store.on_durable(partial(self._on_durable_done, self._group))
        self._group.append((connection, answers))

    def forget(self) -> None:
        """Decide everything anew: a topic changed, or is on disk now."""
        self.generation += 1

    def _on_durable_done(
        self, group: list[tuple[Connection, list[bytes]]], status: PutStatus
    ) -> None:
        """All sends of a turn are as safe as promised, or none is: answer."""
        if status is not PutStatus.PUT_OK:
            group = [
                (connection, [self._unsafe(one, status) for one in each])
                for connection, each in group
            ]
        for connection, answers in group:
            if self.is_sync:
                connection.end_requests(answers)
            else:
                connection.write(answers)

    @staticmethod
    def _unsafe(answer: bytes, status: PutStatus) -> bytes:
        command = Command.decode(Frame(JSON, answer[8:], b""))
        command.code, command.remark = PUT_STATUS_CODES[status], PUT_STATUS_REMARKS[status]
        return command.encode()

    def complete(self, raw: bytes) -> tuple[bytes, int, bytes] | None:
        """Properties as they are stored, their tags code and UNIQ_KEY; None: the long way.

        One pass; measured: 3.4 -> 1.8 us for five properties, against asking for each key.
        """
        kept, unique, tag = [], b"", b""
        for item in raw.removesuffix(b"\x02").split(b"\x02"):
            key, _, value = item.partition(b"\x01")
            if key in _LONG_WAY_KEYS or not value:
                return None
            if key[:2] == b"__" and key != b"__SHARDINGKEY":
                return None
            if key == b"UNIQ_KEY":
                unique = value
            elif key == b"TAGS":
                tag = value
            kept.append(item)
        if not unique.isalnum() or len(unique) > _UNIQUE_MAX:
            return None
        kept.append(self._send.preparation.tail)
        return b"\x02".join(kept), tags_code_of(tag) if tag else 0, unique

    def plan(self, layout: SendLayout, connection: Connection) -> Plan:
        """Decide how sends of this layout go, and keep it there."""
        plan = layout.plan = self._decide(layout, connection)
        return plan

    def _decide(self, layout: SendLayout, connection: Connection) -> Plan:
        header, topic = layout.header, layout.header.topic
        long_way = Plan(0, self._stats.counter_of_puts(topic))
        config = self._topics.get(topic)
        if (
            config is None
            or self._topics.writer.is_pending(topic)
            or layout.code not in _SENDS
            or layout.flag
            or header.batch
        ):
            return long_way
        if not sysflag.is_queued(header.sys_flag):
            return long_way
        queue_count = max(config.write_queue_nums, config.read_queue_nums)
        if (
            names.is_retry_topic(topic)
            or queue_count > QUEUES_MAX
            or len(self._region) > _REGION_MAX
        ):
            return long_way
        try:
            self._send.check.admit(header)
            sys_flag = self._send.check.sys_flag_of(header, config)
        except Reject:
            return long_way
        plan = Plan(queue_count, long_way.counter)
        if layout.is_steady and not self._complete_around(plan, layout):
            return long_way
        host = self._send.responses.store_host.hex().upper().encode()
        plan.answer = _ANSWER % (host, self._region, VERSION)
        lane = self.store.record_template(
            topic,
            queue_count,
            flag=header.flag,
            sys_flag=sys_flag,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        plan.put = lane.put
        if layout.is_steady:
            plan.put_run = lane.put_run
        return plan

    def _complete_around(self, plan: Plan, layout: SendLayout) -> bool:
        """Complete the properties around the layout's texts; False when they are unusual."""
        marks = [_MARK % index for index in range(len(layout.around) - 1)]
        found = self.complete(SendFields(layout, 0, 0, b"", tuple(marks)).properties)
        if found is None:
            return False
        raw, plan.code, unique = found
        places = [raw.find(mark) for mark in marks]
        if places != sorted(places) or any(raw.count(mark) != 1 for mark in marks):
            return False
        plan.raw = raw.replace(b"%", b"%%")
        for mark in marks:
            plan.raw = plan.raw.replace(mark, b"%b")
        plan.unique_at = layout.unique_at
        return unique == marks[layout.unique_at]


def _escaped(region: str) -> bytes:
    """Text as JSON inside a template for `%`."""
    return json.dumps(region)[1:-1].encode().replace(b"%", b"%%")
