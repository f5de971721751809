"""Hot. The short way of a send: a form filled in, written to an open connection, nothing else.

Owns the forms of each topic's queues and what is ready of the properties; refuses everything out
of the way (a stale route, no connection, a large body, flags, delays): the caller then goes the
long way (`delivery`), which also takes over after an error. Invariant: what leaves here decodes to
what the long way would have sent, but for the order of the properties. One loop owns it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import repeat
from typing import TYPE_CHECKING, cast

from cometmq.client.producer import prepared_message as outgoing
from cometmq.client.producer.message_checks import check_topic
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.model.results import SendResult, SendStatus
from cometmq.wire.send_form import SendForm, batch_body

if TYPE_CHECKING:
    import asyncio

    from cometmq.client.producer.queue_selector import QueueChoice
    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.client.session.client_session import Core
    from cometmq.client.session.routes import TopicView
    from cometmq.net.channel import Channel
    from cometmq.wire.command import Command
    from cometmq.wire.send_answer import SendAnswer

FRAME_MESSAGES_MAX = 512
FRAME_BYTES_MAX = 1024 * 1024
"""Most messages and bytes of one batch."""
TEXT_MAX = 1024
"""Longer keys, tags and sharding keys go the long way."""
TAGS_MAX = 4096
"""So many tags are kept ready; at one more all are forgotten."""
_is_plain = re.compile(r"[!#-\[\]-~][ !#-\[\]-~]*").fullmatch
_WAIT = b"WAIT\\u0001true\\u0002"
_new = tuple.__new__
_ZERO = 0
_OK = SendStatus.SEND_OK
_REGION = "DefaultRegion"


class QueueForm:
    """One queue, ready to be sent to."""

    __slots__ = ("addr", "batch_form", "channel", "fill", "form", "others", "queue", "queue_id")

    def __init__(
        self,
        queue: MessageQueue,
        form: SendForm,
        batch_form: SendForm,
        others: dict[int, MessageQueue],
    ) -> None:
        """`others` are all queues of the topic on the same broker, by their ids."""
        self.queue, self.form, self.batch_form, self.others = queue, form, batch_form, others
        self.queue_id, self.fill = queue.queue_id, form.pieces
        self.channel: Channel | None = None
        self.addr = ""


class _TopicForms:
    """The queues of one topic as they were in one view of its route, and whose turn it is."""

    __slots__ = ("count", "owner", "queues", "turn")

    def __init__(self, owner: Quick, queues: list[QueueForm], turn: int) -> None:
        self.owner, self.queues, self.count, self.turn = owner, queues, len(queues), turn


Posted = tuple["asyncio.Future[SendAnswer | Command]", QueueForm, str, int]
"""A send under way: the future of its answer, where to, under which id, when it was born (ms)."""
PostedBatch = tuple["asyncio.Future[SendAnswer | Command]", QueueForm, list[str], int]
"""The same of several messages in one frame."""


class Quick:
    """Makes and posts the sends of one producer that need nothing special."""

    __slots__ = (
        "_batch_tails", "_body_below", "_born_ms", "_choice", "_core", "_frame_max", "_now_ms",
        "_options", "_tails", "_take_key", "_views",
    )  # fmt: skip

    def __init__(self, core: Core, choice: QueueChoice, options: ProducerOptions) -> None:
        self._core, self._choice, self._options = core, choice, options
        self._body_below = min(options.compress_over_bytes, options.body_bytes_max + 1)
        self._frame_max = min(FRAME_BYTES_MAX, options.body_bytes_max)
        told = core.options
        is_off = (
            options.retry_not_ok
            or options.latency_fault != "off"
            or told.credentials is not None
            or told.namespace is not None
            or told.namespace_v2 is not None
            or told.trace is not None
        )
        self._now_ms, self._take_key = core.clock.now_ms, core.uniq_keys.take
        self._views: dict[str, TopicView] = {} if is_off else core.routes.views
        self._born_ms = 0
        self._tails: dict[str | None, bytes] = {}
        self._batch_tails: dict[str | None, bytes] = {}

    def choose(self, message: Message, turn: int | None = None) -> tuple[QueueForm, bytes] | None:
        """The message's queue and its properties; None when it takes the long way.

        `turn` is the caller's own, from a thread of its own; without it the topic's next one.
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
            or message.wait_store_ok is not True
        ):
            return None
        key, tail = message.sharding_key, self._tails.get(tags)
        if tail is None or message.keys or key is not None:
            tail = self._tail(message)
            if tail is None:
                return None
        view = self._views.get(topic)
        if view is None or view.is_stale:
            return None
        forms: _TopicForms | None = view.plan
        if forms is None or forms.owner is not self:
            forms = self._make(topic, view)
        if key is not None:
            if not self._choice.is_plain:
                return None
            return forms.queues[self._choice.index_of(key, forms.count)], tail
        if turn is None:
            turn = forms.turn
            forms.turn = turn + 1
        return forms.queues[turn % forms.count], tail

    def post(self, message: Message, deadline: float) -> Posted | None:
        """Write the message to its queue's broker, or None when that takes the long way."""
        chosen = self.choose(message)
        if chosen is None:
            return None
        place, tail = chosen
        channel = place.channel
        if channel is None or channel.is_dead:
            channel = self._connected(place)
            if channel is None:
                return None
        if channel.is_quiet:  # else the time of the first of this tick will do
            self._born_ms = self._now_ms()
        born_ms = self._born_ms
        msg_id = self._take_key(born_ms)
        channel.opaque = opaque = (channel.opaque + 1) & 0x7FFFFFFF
        frame = place.fill(opaque, born_ms, msg_id.encode(), tail, message.body)
        return channel.post(opaque, frame, deadline), place, msg_id, born_ms

    def places_for(self, messages: list[Message]) -> list[QueueForm] | None:
        """The queues for a list that fits into one plain frame, the one whose turn it is first.

        None when it takes the long way.
        """
        if not self._views or not 1 < len(messages) <= FRAME_MESSAGES_MAX:
            return None
        first = messages[0]
        if type(first) is not Message or type(first.topic) is not str:
            return None
        topic, tags, size = first.topic, first.tags, 128 * len(messages)
        for message in messages:  # measured: 90 ns each, where an attrgetter of all takes 140
            if (
                type(message) is not Message
                or type(message.body) is not bytes
                or not message.body
                or (message.topic is not topic and message.topic != topic)
                or (message.tags is not tags and message.tags != tags)
                or message.keys is not None
                or message.properties is not None
                or message.sharding_key is not None
                or message.delay_level is not _ZERO
                or message.flag is not _ZERO
                or message.wait_store_ok is not True
            ):
                return None
            size += len(message.body)
        view = self._views.get(topic)
        if view is None or view.is_stale or (tags is not None and type(tags) is not str):
            return None
        if size > self._frame_max or self._batch_tail(tags) is None:
            return None
        forms: _TopicForms | None = view.plan
        if forms is None or forms.owner is not self:
            forms = self._make(topic, view)
        turn = forms.turn % forms.count
        forms.turn += 1
        return forms.queues[turn:] + forms.queues[:turn]

    def post_batch(
        self, messages: list[Message], place: QueueForm, deadline: float
    ) -> PostedBatch | None:
        """Write such a list to its queue's broker; None when there is no connection yet."""
        channel = place.channel
        if channel is None or channel.is_dead:
            channel = self._connected(place)
            if channel is None:
                return None
        born_ms = self._now_ms()
        ids = self._core.uniq_keys.take_many(born_ms, len(messages))
        keys, bodies = list(map(str.encode, ids)), [message.body for message in messages]
        body = batch_body(bodies, keys, self._batch_tail(messages[0].tags) or b"")
        channel.opaque = opaque = (channel.opaque + 1) & 0x7FFFFFFF
        frame = place.batch_form.pieces(opaque, born_ms, keys[0], _WAIT, body)
        return channel.post(opaque, frame, deadline), place, ids, born_ms

    def _tail(self, message: Message) -> bytes | None:
        """The properties beside UNIQ_KEY as they stand in the header; None for the long way."""
        tail = self._tail_with(message.tags)
        if message.keys:
            tail = _with(tail, b"KEYS", message.keys)
        if message.sharding_key is not None:
            tail = _with(tail, b"__SHARDINGKEY", message.sharding_key)
        return tail

    def _tail_with(self, tags: str | None) -> bytes | None:
        tail = self._tails.get(tags)
        if tail is None:
            tail = _WAIT if tags is None else _with(_WAIT, b"TAGS", tags)
            if tail is not None:
                if len(self._tails) >= TAGS_MAX:
                    self._tails.clear()
                self._tails[tags] = tail
        return tail

    def _batch_tail(self, tags: str | None) -> bytes | None:
        """The same as it stands in the items of a batch."""
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

    def _make(self, topic: str, view: TopicView) -> _TopicForms:
        check_topic(topic)
        options = self._options
        more = options.default_topic_queues
        places, of_broker = [], defaultdict[str, dict[int, MessageQueue]](dict)
        for queue in view.publish:
            named = (options.group, topic, queue.broker_name, queue.queue_id, more)
            others = of_broker[queue.broker_name]
            others[queue.queue_id] = queue
            places.append(QueueForm(queue, SendForm(*named), SendForm(*named, batch=True), others))
        forms = view.plan = _TopicForms(self, places, self._choice.next_turn(topic))
        return forms

    def _connected(self, place: QueueForm) -> Channel | None:
        place.addr = self._core.routes.find_master(place.queue.broker_name) or ""
        place.channel = self._core.pool.open_channel(place.addr)
        return place.channel


def result_of(place: QueueForm, addr: str, msg_id: str, answer: SendAnswer | Command) -> SendResult:
    """What the answer to a send says; raises BrokerError when it was not stored."""
    queue = place.queue
    if type(answer) is not tuple:
        return outgoing.result_of(cast("Command", answer), addr, queue, msg_id)
    queue_id, queue_offset, offset_id, transaction = answer
    if place.queue_id != queue_id:
        queue = _other_queue(place, queue_id)
    result: SendResult = _new(
        SendResult, (_OK, msg_id, queue, queue_offset, offset_id, transaction, _REGION, True)
    )
    return result


def _other_queue(place: QueueForm, queue_id: int) -> MessageQueue:
    """The queue that a broker chose itself."""
    queue, known = place.queue, place.others.get(queue_id)
    return known or MessageQueue(queue.topic, queue.broker_name, queue_id)


def results_of(posted: PostedBatch, answer: SendAnswer | Command) -> list[SendResult]:
    """One result a message; raises BrokerError when they were not stored."""
    _, place, ids, _ = posted
    queue = place.queue
    if type(answer) is not tuple:
        return outgoing.batch_results_of(cast("Command", answer), place.addr, queue, ids)
    queue_id, first, offset_msg_ids, _ = answer
    if queue.queue_id != queue_id:
        queue = _other_queue(place, queue_id)
    count, places = len(ids), offset_msg_ids.split(",")
    if len(places) != count:
        places = [offset_msg_ids] * count
    offsets = range(first, first + count)
    same = repeat(_OK), repeat(queue), repeat(None), repeat(_REGION), repeat(True)
    fields = zip(same[0], ids, same[1], offsets, places, *same[2:], strict=False)
    return list(map(_new, repeat(SendResult), fields))


def _with(tail: bytes | None, name: bytes, value: str) -> bytes | None:
    """One property more, when its value needs no care at all."""
    if tail is None or type(value) is not str or len(value) > TEXT_MAX or not _is_plain(value):
        return None
    return b"%b%b\\u0001%b\\u0002" % (tail, name, value.encode())
