"""Hot. What is decided once for all sends whose headers match one template.

Whatever is out of the ordinary (a delay, a transaction, a retry topic, a one-way send, any refusal)
is left to `broker/sends/send_handler`, whose checks are used here to decide. Refuses to know
connections and frames. Invariant: a send that follows its plan is stored and answered exactly as
the handler would have. Java: none.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from cometmq import native
from cometmq.broker.sends.message_preparation import PRIORITY
from cometmq.broker.sends.plain_batches import PlainBatchWriter
from cometmq.broker.sends.tag_codes import tags_code_of
from cometmq.errors import Reject
from cometmq.model import topic as names
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import VERSION
from cometmq.wire.records import properties, sysflag
from cometmq.wire.templates.send_template import filled, unescaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.sends.send_handler import SendHandler
    from cometmq.metrics.traffic_counters import TrafficCounter
    from cometmq.model.topic import TopicConfig
    from cometmq.net.connection import Connection
    from cometmq.settings.store import StoreSettings
    from cometmq.store.log.record_template import RecordPositions, RecordTemplate, StoredBatch
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.templates.send_template import SendTemplate

    Put = Callable[[int, int, bytes, bytes, int], tuple[int, int, int] | None]
    PutRun = Callable[
        [list[int], list[int], Sequence[bytes], list[bytes], list[int]], RecordPositions
    ]
    PutFrames = Callable[[bytes, int, tuple[object, ...], int], tuple[int, list[bytes], int]]
    PutBatch = Callable[[int, int, bytes], StoredBatch | None]

QUEUES_MAX = 1024
"""Sends to topics with more queues take the slow path."""
_UNIQUE_MAX, _REGION_MAX = 1024, 2048
_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_MARK = b"7E57AB1E%04d"
_ANSWER = (
    b'{"code":0,"extFields":{"msgId":"%b%%016X","queueId":"%%d","queueOffset":"%%d",'
    b'"transactionId":"%%b","MSG_REGION":"%b","TRACE_ON":"true"},"flag":1,"language":"PYTHON",'
    b'"opaque":%%b,"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_ANSWER_PIECES = 6
_gap = re.compile(rb"(?<!%)%(?:016X|d|b)")
_BATCH_ANSWER = _ANSWER.replace(b"%%016X", b"%%b")
_SLOW_PATH_KEYS = frozenset(
    (
        b"DELAY",
        b"TRAN_MSG",
        b"INNER_NUM",
        b"POP_CK",
        b"MSG_REGION",
        b"CLUSTER",
        b"TIMER_DELIVER_MS",
        b"TIMER_DELAY_MS",
        b"TIMER_DELAY_SEC",
        b"TIMER_DEL_UNIQKEY",
        PRIORITY,
    )
)
"""Properties that ask for more than storing them; so do those that begin with two underscores."""


class SendPlan:
    """What is decided once for a template; `put` is None where its sends take the slow path."""

    __slots__ = (
        "answer",
        "born",
        "born_ms",
        "code",
        "counter",
        "form",
        "properties",
        "put",
        "put_batch",
        "put_frames",
        "put_run",
        "queue_count",
        "tag",
        "tags_at",
        "unique_at",
    )

    def __init__(self, queue_count: int, counter: TrafficCounter) -> None:
        self.queue_count = queue_count
        self.counter = counter
        self.tag = b""
        self.born = b""
        """The last born time, in digits, and as a number: many sends share it."""
        self.born_ms = 0
        self.put: Put | None = None
        self.put_run: PutRun | None = None
        """The same for many; None where each must be looked at."""
        self.put_frames: PutFrames | None = None
        """What puts the sends of frames, cut by `form` in C."""
        self.form: tuple[object, ...] | None = None
        self.put_batch: PutBatch | None = None
        """What puts the body of a request that is a batch: then `put` is None, too."""
        self.properties = self.answer = b""
        """The properties as they are stored and the answer, both to be filled in by `%`."""
        self.code = 0
        """The tags code: that of all, or where `tags_at` is not -1 that of `tag`."""
        self.unique_at = self.tags_at = -1
        """Which texts are those of UNIQ_KEY and TAGS; without the former each send is looked at."""

    def take_tag(self, tag: bytes) -> None:
        """Have `code` be that of this tag, the last one that came."""
        self.tag = tag
        self.code = tags_code_of(tag)


class SendPlanner:
    """Decides for all connections of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        send: SendHandler,
        stats: BrokerStats,
        region_id: str,
        settings: StoreSettings,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._send = send
        self._stats = stats
        self._region = json.dumps(region_id)[1:-1].encode().replace(b"%", b"%%")

    def adjust(self, settings: StoreSettings) -> None:
        """Plan with these settings from now on."""
        self._settings = settings

    def plan(self, template: SendTemplate, connection: Connection) -> SendPlan:
        """Decide how sends that match this template go, and keep it there."""
        plan = template.plan = self._decide(template, connection)
        return plan

    def complete(self, raw: bytes) -> tuple[bytes, int, bytes] | None:
        """Properties as they are stored, their tags code and UNIQ_KEY; None: the slow path.

        One pass; measured: 3.4 -> 1.8 us for five properties, against asking for each key.
        """
        if self._store.durability_conditions.active and b"WAIT\x01false" in raw:
            return None  # it waits for less than the other sends of its batch
        kept, unique, tag = [], b"", b""
        for item in raw.removesuffix(b"\x02").split(b"\x02"):
            key, _, value = item.partition(b"\x01")
            if key in _SLOW_PATH_KEYS or not value:
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

    def _decide(self, template: SendTemplate, connection: Connection) -> SendPlan:
        header = template.header
        slow_path = SendPlan(0, self._stats.counter_of_puts(header.topic))
        config = self._topics.get(header.topic)
        if config is None or self._is_special(template, config):
            return slow_path
        try:
            self._send.check.admit(header)
            sys_flag = self._send.check.sys_flag_of(header, config)
        except Reject:
            return slow_path
        queue_count = max(config.write_queue_nums, config.read_queue_nums)
        plan = SendPlan(queue_count, slow_path.counter)
        is_batch = bool(header.batch) or template.code == RequestCode.SEND_BATCH_MESSAGE
        if is_batch:
            return self._complete_batch_plan(plan, template, sys_flag, connection)
        if not template.takes_all and not self._complete_around(plan, template):
            return slow_path
        host = self._send.responses.store_host.hex().upper().encode()
        plan.answer = _ANSWER % (host, self._region, VERSION)
        records = self._store.record_template(
            header.topic,
            queue_count,
            flag=header.flag,
            sys_flag=sys_flag,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        plan.put = records.put
        if not template.takes_all and template.signature_at < 0:
            plan.put_run = records.put_run
            self._complete_form(plan, template, records)
        return plan

    def _complete_form(
        self, plan: SendPlan, template: SendTemplate, records: RecordTemplate
    ) -> None:
        """Add what cuts, stores and answers matching frames in C, where that can be."""
        properties, answer = _pieces(plan.properties), _pieces(plan.answer)
        is_whole = len(properties) == len(template.around) and len(answer) == _ANSWER_PIECES
        if native.c is None or template.layout is None or not is_whole:
            return
        places = plan.unique_at, plan.tags_at
        plan.form = (*template.layout, *places, properties, answer, plan.code, plan.queue_count)
        plan.put_frames = records.put_frames

    def _complete_batch_plan(
        self, plan: SendPlan, template: SendTemplate, sys_flag: int, connection: Connection
    ) -> SendPlan:
        """Decide how the batches of one sender go; the properties of a request only matter here."""
        header = template.header
        if not template.takes_all:
            if not self._waits_as_others(filled(template, (b"",) * len(template.around[1:]))):
                return plan
            plan.unique_at = template.unique_at
        plan.answer = _BATCH_ANSWER % (b"", self._region, VERSION)
        records = self._store.record_template(
            header.topic,
            plan.queue_count,
            flag=0,
            sys_flag=sys_flag,
            born_host=connection.host,
            reconsume_times=header.reconsume_times or 0,
        )
        tags_code, topic = self._store.tags_code, header.topic
        plan.put_batch = PlainBatchWriter(
            records,
            lambda raw: tags_code(topic, raw, 0),
            self._settings.batch_messages_max,
            self._send.responses.store_host,
        ).put
        return plan

    def usual_batch(
        self, plan: SendPlan, texts: tuple[bytes, ...]
    ) -> tuple[bytes, tuple[bytes, ...]] | None:
        """The form of the answer to a batch and the id it repeats, if any; None: the slow path."""
        if plan.unique_at >= 0:
            return plan.answer, (texts[plan.unique_at],)
        raw = unescaped(texts[0])
        if not self._waits_as_others(raw):
            return None
        unique = properties.find(raw, b"UNIQ_KEY")
        if unique is None:
            return plan.answer.replace(b'"transactionId":"%b",', b""), ()
        return (plan.answer, (unique,)) if unique.isalnum() else None

    def _waits_as_others(self, raw: bytes) -> bool:
        """Whether a batch whose request has these properties waits for what other sends do."""
        return not (self._store.durability_conditions.active and b"WAIT\x01false" in raw)

    def _is_special(self, template: SendTemplate, config: TopicConfig) -> bool:
        """Whether these sends take the slow path whatever they hold."""
        header = template.header
        return (
            self._topics.writer.is_pending(header.topic)
            or template.code not in _SENDS
            or bool(template.flag)
            or not sysflag.is_queued(header.sys_flag)
            or names.is_retry_topic(header.topic)
            or max(config.write_queue_nums, config.read_queue_nums) > QUEUES_MAX
            or len(self._region) > _REGION_MAX
        )

    def _complete_around(self, plan: SendPlan, template: SendTemplate) -> bool:
        """Complete the properties around the template's texts; False when they are unusual."""
        marks = tuple([_MARK % index for index in range(len(template.around) - 1)])
        found = self.complete(filled(template, marks))
        if found is None:
            return False
        raw, plan.code, unique = found
        places = [raw.find(mark) for mark in marks]
        if places != sorted(places) or any(raw.count(mark) != 1 for mark in marks):
            return False
        plan.properties = raw.replace(b"%", b"%%")
        for mark in marks:
            plan.properties = plan.properties.replace(mark, b"%b")
        plan.unique_at = template.unique_at
        plan.tags_at = template.tags_at
        return unique == marks[template.unique_at]


def _pieces(form: bytes) -> tuple[bytes, ...]:
    """What stands around the gaps of a form for `%`."""
    return tuple([piece.replace(b"%%", b"%") for piece in _gap.split(form)])
