"""Sends failed messages back to the broker: to be retried later, or as dead letters.

Owns the two ways back (CONSUMER_SEND_MSG_BACK, and a plain send to the group's retry topic) and
what a dead letter carries; knows nothing of when a message is given up
(`rules.failures.retry_policy`). Invariants: nothing is reported as sent back unless a broker has
confirmed it; a message whose properties nearly fill a record can still become a dead letter.
Java: DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageOrderlyService.sendMessageBack
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.failures.message_origin import first_place
from cometmq.client.producer.message_checks import PROPERTIES_BYTES_MAX
from cometmq.client.producer.prepared_message import prepare_retry
from cometmq.errors import CometError, RouteNotFound
from cometmq.model.message import Property
from cometmq.model.queue import MessageQueue
from cometmq.model.topic import retry_topic_of
from cometmq.rules.delay_levels import DelayLevels
from cometmq.rules.failures.dead_letter_properties import fit_property_pairs
from cometmq.rules.failures.retry_policy import attempts_exhausted, retry_delay_level
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.retry import ConsumerSendMsgBackRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.producer.queue_selector import QueueSelector
    from cometmq.client.producer.retrying_sender import RetryingSender
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

DLQ_REASON_FIELD = "dlqReason"
"""Our own field of a send-back: what the dead letter shall say when this was the last attempt."""
_BACK_TIMEOUT_S = 5.0
_SEND_TIMEOUT_S = 3.0
_BROKERS_BYTES = 120
"""What a broker may write besides its region and its cluster: other pairs and the checksum."""
_LEVELS = DelayLevels.parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""RocketMQ's table; a broker may have another, which clients do not learn."""
_OF_TIMERS = (
    "TIMER_OUT_MS",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_SEC",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
)
_DROPPED = (Property.TRAN_MSG, Property.DELAY, Property.WAIT, Property.DLQ_DIVERTED)


class FailedMessageSender:
    """Sends back the failed messages of one group. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        sender: RetryingSender,
        queue_selector: QueueSelector,
        group: str,
        times_max: int,
    ) -> None:
        self._session = session
        self._sender = sender
        self._queue_selector = queue_selector
        self._group = group
        self._times_max = times_max
        self.sent_back = 0
        self.sent_back_delay_s = 0.0
        """The delays of all that were sent back, by RocketMQ's table of levels, added up."""
        self.not_sent_back = 0
        """Attempts that no broker took."""

    async def send_back(
        self,
        message: MessageExt,
        queue: MessageQueue,
        delay_level: int,
        reason: str,
        times_max: int | None = None,
        after_s: float | None = None,
    ) -> bool:
        """Have the broker deliver the message again; False when no broker took it back.

        `after_s`: not by a level but after so many seconds, where brokers have timers.

        The broker decides whether it is a dead letter now; when it refuses, we do. A damaged one is
        one now. `times_max` is its maximum of repeats; None: that of the group.
        """
        if message.is_damaged:  # a copy would get a checksum of its own, and look whole
            return await self.send_dead_letter(message, reason, message.reconsume_times)
        level = retry_delay_level(delay_level, message.reconsume_times)
        delay_s = _LEVELS.delay_ms(max(level, 1)) / 1000
        is_taken = False
        if after_s is not None:
            delay_level, delay_s = _LEVELS.nearest(int(after_s * 1000)), after_s
            is_taken = await self._send_by_timer(message, after_s, times_max)
        is_taken = is_taken or await self._send_back(message, queue, delay_level, reason, times_max)
        if is_taken:
            self.sent_back += 1
            self.sent_back_delay_s += delay_s
        else:
            self.not_sent_back += 1
        return is_taken

    async def _send_by_timer(
        self, message: MessageExt, after_s: float, times_max: int | None
    ) -> bool:
        """Send it to the retry topic with a time of its own; False where no broker takes that."""
        times_max = self._times_max if times_max is None else times_max
        if attempts_exhausted(message.reconsume_times, times_max):
            return False  # the broker makes it a dead letter
        pairs = self._retry_pairs(message, times_max)
        for name in _OF_TIMERS:  # it may have come at a time of its own itself
            pairs.pop(name, None)
        pairs[Property.TIMER_DELAY_MS] = str(int(after_s * 1000))
        return await self._send(message, pairs)

    async def _send_back(
        self,
        message: MessageExt,
        queue: MessageQueue,
        delay_level: int,
        reason: str,
        times_max: int | None,
    ) -> bool:
        times_max = self._times_max if times_max is None else times_max
        try:
            await self._back(message, queue, delay_level, reason, times_max)
        except CometError as error:
            log.warning(
                "the broker did not take %s back, sending it as a new message: %s", message, error
            )
            if delay_level < 0 or attempts_exhausted(message.reconsume_times, times_max):
                return await self.send_dead_letter(message, reason, times_max)
            pairs = self._retry_pairs(message, times_max)
            pairs[Property.DELAY] = str(retry_delay_level(delay_level, message.reconsume_times))
            return await self._send(message, pairs)
        return True

    async def send_dead_letter(
        self,
        message: MessageExt,
        reason: str,
        times_max: int | None = None,
        facts: Mapping[str, str] | None = None,
        broker_name: str | None = None,
    ) -> bool:
        """Make the message a dead letter of the group; False when no broker took it.

        `times_max` is said to have been its maximum of repeats; None: that of the group. `facts`
        are further properties; `broker_name` is the only broker that may have it. What does not fit
        into a record beside the message's properties is left out.
        """
        times_max = self._times_max if times_max is None else times_max
        pairs = self._retry_pairs(message, times_max)
        pairs[Property.DLQ_REASON] = reason
        pairs[Property.DLQ_ATTEMPTS] = str(message.reconsume_times + 1)
        pairs[Property.DLQ_ORIGIN_TOPIC] = pairs[Property.RETRY_TOPIC]
        pairs[Property.DLQ_ORIGIN_MESSAGE_ID] = (
            pairs.get(Property.UNIQ_KEY) or pairs[Property.ORIGIN_MESSAGE_ID]
        )
        if place := await first_place(self._session, message):
            queue_id, offset = place
            pairs[Property.DLQ_ORIGIN_QUEUE_ID] = str(queue_id)
            pairs[Property.DLQ_ORIGIN_OFFSET] = str(offset)
        pairs[Property.DLQ_FAILED_AT] = str(self._session.clock.now_ms())
        # one above the maximum, so that any broker takes it for a dead letter
        pairs[Property.RECONSUME_TIME] = str(times_max + 1)
        pairs.update(facts or {})
        pairs, left_out = fit_property_pairs(pairs, _room(message))
        if left_out:
            log.warning(
                "the dead letter of %s cannot hold all its properties, without: %s",
                message,
                ", ".join(left_out),
            )
        return await self._send(message, pairs, broker_name)

    async def _back(
        self,
        message: MessageExt,
        queue: MessageQueue,
        delay_level: int,
        reason: str,
        times_max: int,
    ) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.phy_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=times_max,
            broker_name=queue.broker_name,
        )
        command = request(RequestCode.CONSUMER_SEND_MSG_BACK, 0, header)
        command.ext[DLQ_REASON_FIELD] = reason
        addr = self._session.routes.master_addr(queue.broker_name)
        await self._session.call_checked(addr, command, _BACK_TIMEOUT_S)

    def _retry_pairs(self, message: MessageExt, times_max: int) -> dict[str, str]:
        pairs = {name: text for name, text in message.properties.items() if name not in _DROPPED}
        pairs.setdefault(Property.ORIGIN_MESSAGE_ID, message.msg_id)
        pairs.setdefault(Property.RETRY_TOPIC, message.topic)
        pairs[Property.RECONSUME_TIME] = str(message.reconsume_times + 1)
        pairs[Property.MAX_RECONSUME_TIMES] = str(times_max)
        return pairs

    async def _send(
        self, message: MessageExt, pairs: dict[str, str], broker_name: str | None = None
    ) -> bool:
        topic = retry_topic_of(self._group)

        async def choose(failed_broker: str | None) -> MessageQueue:
            try:
                queues = await self._session.routes.publish_queues(topic, 1)
            except RouteNotFound:  # no broker has met a member of the group yet
                queues = []
            if broker_name is not None:
                queues = [queue for queue in queues if queue.broker_name == broker_name]
            if not queues:  # a broker makes the retry topic of a group when it is sent to
                queues = [MessageQueue(topic, broker_name or message.broker_name, 0)]
            return self._queue_selector.round_robin(topic, queues, failed_broker)

        deadline = asyncio.get_running_loop().time() + _SEND_TIMEOUT_S
        try:
            sent = prepare_retry(
                topic, message, pairs, self._sender.options, self._session.clock.now_ms()
            )
            await self._sender.send(sent, choose, 2, deadline)
        except CometError as error:
            log.warning("%s could not be sent back to a broker: %s", message, error)
            return False
        return True


def _room(message: MessageExt) -> int:
    """The bytes for properties of a dead letter: brokers write their own beside them."""
    own = (Property.MSG_REGION, Property.CLUSTER)
    names = sum(len(message.properties.get(name, "").encode()) for name in own)
    return PROPERTIES_BYTES_MAX - _BROKERS_BYTES - names
