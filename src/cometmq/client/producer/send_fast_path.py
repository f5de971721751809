"""Hot. The fast path of a send: fill a frame template and write it to an open connection.

Owns the templates of each topic's queues and the cache of encoded properties; refuses everything
unusual (a stale route, no connection, a large body, flags, delays): the caller then uses the slow
path (`retrying_sender`), which also takes over after an error. Invariant: a frame made here decodes
to what the slow path would have sent, except for the order of the properties. One loop owns it.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, cast

from cometmq import native
from cometmq.client.producer import prepared_message as slow_path
from cometmq.client.producer.message_checks import check_topic
from cometmq.client.producer.plain_batch import TEXT_MAX, AnyBatch, plain_batch
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult, SendStatus
from cometmq.rules.filters.tag_expressions import is_unnameable
from cometmq.wire.templates.send_request import (
    SendRequestTemplate,
    SignedSendRequestTemplate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.producer.queue_selector import QueueSelector
    from cometmq.client.producer.send_statistics import SendCounts, SendStatistics
    from cometmq.client.session.client_session import ClientSession
    from cometmq.client.session.routes import CachedRoute
    from cometmq.model.message import Message
    from cometmq.net.channel import AnswerWaiter, Channel
    from cometmq.wire.command import Command
    from cometmq.wire.templates.send_response import SendAnswer

FRAME_BYTES_MAX = 1024 * 1024
"""Most bytes of one batch."""
TAGS_MAX = 4096
"""Tags whose encoded properties are cached; one more empties the cache."""
_is_plain = re.compile(r"[!#-\[\]-~][ !#-\[\]-~]*").fullmatch
_WAIT = b"WAIT\\u0001true\\u0002"
_new = tuple.__new__
_OK = SendStatus.SEND_OK
_REGION = "DefaultRegion"


class QueueTarget:
    """A queue to send to: its frame templates and its broker's connection."""

    __slots__ = (
        "addr",
        "batch_form",
        "channel",
        "counts",
        "fill",
        "form",
        "others",
        "queue",
        "queue_id",
    )

    def __init__(
        self,
        queue: MessageQueue,
        form: SendRequestTemplate,
        batch_form: SendRequestTemplate,
        others: dict[int, MessageQueue],
        counts: SendCounts,
    ) -> None:
        """`others` are all queues of the topic on the same broker, by their ids."""
        self.counts = counts
        self.queue = queue
        self.form = form
        self.batch_form = batch_form
        self.others = others
        self.queue_id = queue.queue_id
        self.fill = form.pieces
        self.channel: Channel | None = None
        self.addr = ""


class _TopicTargets:
    """The queues of one topic in one version of its route, and the position of the round-robin."""

    __slots__ = ("count", "owner", "queues", "turn")

    def __init__(self, owner: SendFastPath, queues: list[QueueTarget], turn: int) -> None:
        self.owner = owner
        self.queues = queues
        self.count = len(queues)
        self.turn = turn


PostedSend = tuple[QueueTarget, str, int]
"""A send under way: its queue, message id and birth time (ms)."""
PostedBatch = tuple["asyncio.Future[SendAnswer | Command]", QueueTarget, list[str], int]
"""A batch under way, likewise, after the future of its response."""


class SendFastPath:
    """Sends the plain messages of one producer."""

    __slots__ = (
        "_attempt_s", "_batch_tails", "_body_below", "_born_ms", "_frame_max", "_key_bytes",
        "_now_ms", "_options", "_routes", "_selector", "_session", "_statistics", "_tails",
        "_take_key",
    )  # fmt: skip

    def __init__(
        self,
        session: ClientSession,
        selector: QueueSelector,
        options: ProducerOptions,
        statistics: SendStatistics,
    ) -> None:
        self._session = session
        self._statistics = statistics
        self._selector = selector
        self._options = options
        self._body_below = min(options.compress_over_bytes, options.body_bytes_max + 1)
        self._attempt_s = options.attempt_timeout_s
        self._frame_max = min(FRAME_BYTES_MAX, options.body_bytes_max)
        client = session.options
        is_off = (
            options.retry_not_ok
            or options.latency_fault != "off"
            or client.namespace is not None
            or client.namespace_v2 is not None
            or client.trace is not None
        )
        self._now_ms = session.clock.now_ms
        self._take_key = session.uniq_keys.next_key
        self._key_bytes = session.uniq_keys.key_bytes
        self._routes: dict[str, CachedRoute] = {} if is_off else session.routes.cached
        self._born_ms = 0
        self._tails: dict[str | None, bytes] = {}
        self._batch_tails: dict[str | None, bytes] = {}

    def choose(self, message: Message, turn: int | None = None) -> tuple[QueueTarget, bytes] | None:
        """The message's queue and its encoded properties; None: use the slow path.

        `turn` is a thread's own round-robin position; without it the topic's next one is used.
        """
        body, topic, tags = message.body, message.topic, message.tags
        if (
            type(body) is not bytes
            or type(topic) is not str
            or (tags is not None and type(tags) is not str)
            or not 0 < len(body) < self._body_below
            or message.properties
            or message.flag != 0
            or message.delay_level != 0
            or message.due is not None
            or message.wait_store_ok is not True
        ):
            return None
        key, tail = message.sharding_key, self._tails.get(tags)
        if tail is None or message.keys or key is not None:
            tail = self._tail(message)
            if tail is None:
                return None
        targets = self._targets_of(topic)
        if targets is None:
            return None
        if key is not None:
            if not self._selector.is_hash_only:
                return None
            return targets.queues[self._selector.index_of(key, targets.count)], tail
        if turn is None:
            turn = targets.turn
            targets.turn = turn + 1
        return targets.queues[turn % targets.count], tail

    def post(self, waiter: AnswerWaiter, message: Message, deadline: float) -> PostedSend | None:
        """Write the message to its queue's broker, whose response is for `waiter`.

        None: use the slow path.
        """
        chosen = self.choose(message)
        if chosen is None:
            return None
        target, tail = chosen
        channel = target.channel
        if channel is None or channel.is_closed:
            channel = self._connected(target)
            if channel is None:
                return None
        if not channel.is_flush_scheduled:  # else reuse the time of the iteration's first send
            self._born_ms = self._now_ms()
        born_ms = self._born_ms
        msg_id = self._take_key(born_ms)
        channel.opaque = opaque = (channel.opaque + 1) & 0x7FFFFFFF
        frame = target.fill(opaque, born_ms, msg_id.encode(), tail, message.body)
        if self._attempt_s is not None:
            deadline = self._of_one_attempt(deadline)
        channel.send_frame_for(waiter, opaque, frame, deadline)
        return target, msg_id, born_ms

    def batch_of(self, messages: list[Message]) -> AnyBatch | None:
        """The messages as a batch that fits into one plain frame; None: use the slow path."""
        if not self._routes:
            return None
        return plain_batch(messages, self._batch_tail, self._key_bytes, self._frame_max)

    def targets_for(self, batch: AnyBatch) -> list[QueueTarget] | None:
        """The queues for a batch, in round-robin order; None: use the slow path."""
        targets = self._targets_of(batch.topic)
        if targets is None:
            return None
        turn = targets.turn % targets.count
        targets.turn += 1
        return targets.queues[turn:] + targets.queues[:turn]

    def target_for(self, batch: AnyBatch, turn: int) -> QueueTarget | None:
        """The queue at a thread's own round-robin position; None: use the slow path."""
        targets = self._targets_of(batch.topic)
        return None if targets is None else targets.queues[turn % targets.count]

    def post_batch(
        self, batch: AnyBatch, target: QueueTarget, deadline: float
    ) -> PostedBatch | None:
        """Write a batch to its queue's broker; None when there is no connection yet."""
        channel = target.channel
        if channel is None or channel.is_closed:
            channel = self._connected(target)
            if channel is None:
                return None
        ids, born_ms, fill = self.batch_frame(batch, target)
        channel.opaque = opaque = (channel.opaque + 1) & 0x7FFFFFFF
        if self._attempt_s is not None:
            deadline = self._of_one_attempt(deadline)
        return channel.send_frame(opaque, fill(opaque), deadline), target, ids, born_ms

    def batch_frame(
        self, batch: AnyBatch, target: QueueTarget
    ) -> tuple[list[str], int, Callable[[int], tuple[bytes, ...]]]:
        """The ids and birth time (ms) of a batch, and what makes its frame for an opaque."""
        born_ms = self._now_ms()
        ids = self._session.uniq_keys.next_keys(born_ms, len(batch.messages))
        body, first = batch.body(ids), ids[0].encode()
        pieces = target.batch_form.pieces
        return ids, born_ms, lambda opaque: pieces(opaque, born_ms, first, _WAIT, body)

    def _of_one_attempt(self, deadline: float) -> float:
        """The end of an attempt that begins now, of a call that ends at `deadline`."""
        return min(deadline, asyncio.get_running_loop().time() + (self._attempt_s or 0.0))

    def _tail(self, message: Message) -> bytes | None:
        """The properties after UNIQ_KEY as the header has them; None: use the slow path."""
        tail = self._tail_with(message.tags)
        if message.keys:
            tail = _with(tail, b"KEYS", message.keys)
        if message.sharding_key is not None:
            tail = _with(tail, b"__SHARDINGKEY", message.sharding_key)
        return tail

    def _tail_with(self, tags: str | None) -> bytes | None:
        tail = self._tails.get(tags)
        if tail is None:
            if tags is not None and is_unnameable(tags):
                return None  # which the slow path refuses
            tail = _WAIT if tags is None else _with(_WAIT, b"TAGS", tags)
            if tail is not None:
                if len(self._tails) >= TAGS_MAX:
                    self._tails.clear()
                self._tails[tags] = tail
        return tail

    def _batch_tail(self, tags: str | None) -> bytes | None:
        """The same as the items of a batch have them."""
        tail = self._batch_tails.get(tags)
        if tail is None:
            escaped = self._tail_with(tags)
            if escaped is None:
                return None
            if len(self._batch_tails) >= TAGS_MAX:
                self._batch_tails.clear()
            tail = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
            self._batch_tails[tags] = tail
        return tail

    def _targets_of(self, topic: str) -> _TopicTargets | None:
        """What sends need of a topic's route; None while it is stale or without queues."""
        route = self._routes.get(topic)
        if route is None or route.is_stale:
            return None
        targets: _TopicTargets | None = route.send_targets
        if targets is None or targets.owner is not self:
            targets = self._make_targets(topic, route)
        return targets

    def _make_targets(self, topic: str, route: CachedRoute) -> _TopicTargets | None:
        """What sends need of the route; None when no queue of it may be written."""
        if not route.publish:
            return None
        check_topic(topic)
        options, keys = self._options, self._session.options.credentials
        form: Callable[..., SendRequestTemplate] = SendRequestTemplate
        if keys is not None:
            form = partial(SignedSendRequestTemplate, credentials=keys)
        more = options.default_topic_queues
        targets = []
        of_broker = defaultdict[str, dict[int, MessageQueue]](dict)
        for queue in route.publish:
            named = (options.group, topic, queue.broker_name, queue.queue_id, more)
            others = of_broker[queue.broker_name]
            others[queue.queue_id] = queue
            counts = self._statistics.of(queue.broker_name)
            forms = form(*named), form(*named, batch=True)
            targets.append(QueueTarget(queue, *forms, others, counts))
        made = _TopicTargets(self, targets, self._selector.next_turn(topic))
        route.send_targets = made
        return made

    def _connected(self, target: QueueTarget) -> Channel | None:
        target.addr = self._session.routes.find_master_addr(target.queue.broker_name) or ""
        target.channel = self._session.pool.open_channel(target.addr)
        return target.channel


def result_of(
    target: QueueTarget, addr: str, msg_id: str, answer: SendAnswer | Command
) -> SendResult:
    """The result in the response to a send; raises BrokerError when nothing was stored."""
    queue = target.queue
    if type(answer) is not tuple:
        return slow_path.result_of(cast("Command", answer), addr, queue, msg_id)
    queue_id, queue_offset, offset_id, transaction = answer
    if target.queue_id != queue_id:
        queue = _other_queue(target, queue_id)
    result: SendResult = _new(
        SendResult, (_OK, msg_id, queue, queue_offset, offset_id, transaction, _REGION, True, None)
    )
    return result


def _other_queue(target: QueueTarget, queue_id: int) -> MessageQueue:
    """The queue that a broker chose instead of the one asked for."""
    queue, known = target.queue, target.others.get(queue_id)
    return known or MessageQueue(queue.topic, queue.broker_name, queue_id)


def results_of(
    target: QueueTarget, ids: list[str], answer: SendAnswer | Command
) -> list[SendResult]:
    """One result a message; raises BrokerError when nothing was stored."""
    queue = target.queue
    if type(answer) is not tuple:
        return slow_path.batch_results_of(cast("Command", answer), target.addr, queue, ids)
    queue_id, first, offset_msg_ids, _ = answer
    if queue.queue_id != queue_id:
        queue = _other_queue(target, queue_id)
    if native.c is not None:
        shared = (_OK, "", queue, 0, "", None, _REGION, True, None)
        made = native.c.batch_results(SendResult, shared, ids, first, offset_msg_ids)
        if made is not None:
            return made
    count = len(ids)
    offset_ids = offset_msg_ids.split(",")
    if len(offset_ids) != count:
        offset_ids = [offset_msg_ids] * count
    offsets = range(first, first + count)
    fields = zip(
        repeat(_OK), ids, repeat(queue), offsets, offset_ids,
        repeat(None), repeat(_REGION), repeat(True), repeat(None),
        strict=False,
    )  # fmt: skip
    return list(map(_new, repeat(SendResult), fields))


def _with(tail: bytes | None, name: bytes, value: str) -> bytes | None:
    """The properties and one more; None when its value would need escaping."""
    if tail is None or type(value) is not str or len(value) > TEXT_MAX or not _is_plain(value):
        return None
    return b"%b%b\\u0001%b\\u0002" % (tail, name, value.encode())
