"""Keys whose messages are diverted: one has failed, and all later ones follow it, in order.

They go to the group's dead letters, at the broker of their queue, which keep their order there.
Owns which keys are diverted. That is read from the letters themselves, so it holds for every
process, and after any death. Invariants: a key of a queue is diverted from the offset on that the
mark of a letter names, which lies at or above the offset that the group has committed in its
dead-letter queue; what has such a letter is not sent again. A message of the retry topic has lost
its place in the order of its key: it diverts nothing, and follows nothing.
One loop owns it; the threads of handlers only ask.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, cast

from cometmq.client.consumer.pull_request import PullClient, PullRequest, TopicFilter
from cometmq.client.handling.handler_call import NotHandled, call_key_function, is_async
from cometmq.client.offsets.offset_store import OffsetStore
from cometmq.errors import BatchNotHandled, BrokerError, CometError
from cometmq.model.message import Property
from cometmq.model.queue import MessageQueue
from cometmq.model.results import PullStatus
from cometmq.model.topic import dlq_topic_of, is_retry_topic
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.failures.failed_message_sender import FailedMessageSender
    from cometmq.client.handling.handler_call import (
        AsyncHandler,
        Handler,
        HandlerOutcome,
        HandlerStatus,
        SyncHandler,
    )
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.message import MessageExt

log = logging.getLogger(__name__)

LETTERS_MAX = 100_000
"""Letters not released that a group may have: each worker process keeps their keys, some 60 MB."""
_PULL_COUNT = 32
_PAUSE_S = 0.2
_MARK = re.compile(r"(.+)/(\d+)/(\d+)")
"""The value of `DLQ_DIVERTED`: topic, queue id and offset where the message was read."""
_FOLLOWS = "it follows a message of its key that failed"


class _Letter(NamedTuple):
    """What a letter says of the message it was made of, and where that was read."""

    queue: MessageQueue
    offset: int
    key: Hashable


class DivertedShardingKeys:
    """The diverted keys of one group."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, failed_sender: FailedMessageSender
    ) -> None:
        self._options = options
        self._failed_sender = failed_sender
        self._pulls = PullClient(session, options.group, options.inflated_bytes_max)
        self._offsets = OffsetStore(session, options.group, options.consume_from, None)
        self._read: defaultdict[str, dict[int, _Letter]] = defaultdict(dict)
        """By broker: the letters that were read, by their offset in the dead-letter queue."""
        self._next: dict[str, int] = {}
        self._own: set[_Letter] = set()
        """Sent by this process and not read back yet."""
        self._first: dict[tuple[MessageQueue, Hashable], int] = {}
        self._sent: set[tuple[MessageQueue, int]] = set()

    async def refresh(self, broker_name: str, retry_for_s: float) -> None:
        """Read what has come to the dead letters at a broker, and forget what was released.

        Raises RemotingError or BrokerError once the broker has not answered for `retry_for_s`, and
        BatchNotHandled where the group has more letters than `LETTERS_MAX`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + retry_for_s
        while True:
            try:
                await self._read_letters(broker_name)
            except CometError as error:
                if not error.retriable or loop.time() >= deadline:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _read_letters(self, broker_name: str) -> None:
        queue = MessageQueue(dlq_topic_of(self._options.group), broker_name, 0)
        known = self._read[broker_name]
        released = await self._offsets.committed(queue) or 0
        for offset in [offset for offset in known if offset < released]:
            del known[offset]
        at = self._next.get(broker_name, released)
        while True:
            pull = PullRequest(queue, at, _PULL_COUNT, TopicFilter(), carries_filter=True)
            try:
                result = await self._pulls.pull(pull)
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                break  # it comes with the first letter
            for message in result.messages:
                if letter := self._letter_of(message, broker_name):
                    self._own.discard(letter)
                    if message.queue_offset >= released:
                        known[message.queue_offset] = letter
            self._check_room(queue)
            if result.next_offset <= at or result.status is PullStatus.NO_NEW_MSG:
                break
            at = result.next_offset
        self._next[broker_name] = at
        self._index()

    def _check_room(self, queue: MessageQueue) -> None:
        count = sum(map(len, self._read.values()))
        if count > LETTERS_MAX:
            raise BatchNotHandled(
                f"more than {LETTERS_MAX} messages follow diverted keys of the group "
                f"{self._options.group} and are not released: handle what lies in "
                f"{queue.topic}, and set the group's offsets there behind it"
            )

    async def divert(
        self, message: MessageExt, queue: MessageQueue, outcome: HandlerOutcome
    ) -> bool:
        """Make a message a dead letter whose key is diverted from now on; False: not stored."""
        times, reason = message.reconsume_times, outcome.reason
        if is_retry_topic(queue.topic):
            return await self._failed_sender.send_dead_letter(message, reason, times)
        facts = {Property.DLQ_DIVERTED: f"{queue.topic}/{queue.queue_id}/{message.queue_offset}"}
        if isinstance(outcome.error, NotHandled):
            facts[Property.DLQ_ATTEMPTS] = "0"
        else:
            log.warning("%s failed: its key is diverted from there on: %s", message, reason)
        if not await self._failed_sender.send_dead_letter(
            message, reason, times, facts, queue.broker_name
        ):
            return False
        letter = _Letter(queue, message.queue_offset, self._key_of(message))
        self._own.add(letter)
        _add(letter, self._first, self._sent)
        return True

    def guarded(self, handler: Handler) -> Handler:
        """The handler, which gets no message of a diverted key; it stays plain, or async."""
        if is_async(handler):
            awaited = cast("AsyncHandler", handler)

            async def run_async(messages: list[MessageExt]) -> HandlerStatus:
                return None if self._were_sent(messages) else await awaited(messages)

            return run_async
        plain = cast("SyncHandler", handler)
        return lambda messages: None if self._were_sent(messages) else plain(messages)

    def _were_sent(self, messages: list[MessageExt]) -> bool:
        """Whether a message by itself has its letter; raises NotHandled where one is diverted.

        A list with one that is diverted is then handled message by message.
        """
        if not any(self._is_diverted(message) for message in messages):
            return False
        first = messages[0]
        if len(messages) == 1 and (first.message_queue, first.queue_offset) in self._sent:
            return True
        raise NotHandled(_FOLLOWS)

    def _is_diverted(self, message: MessageExt) -> bool:
        if _has_come_back(message):
            return False
        queue = message.message_queue
        if (queue, message.queue_offset) in self._sent:
            return True
        key = self._key_of(message)
        first = self._first.get((queue, key)) if key is not None else None
        return first is not None and first <= message.queue_offset

    def _key_of(self, message: MessageExt) -> Hashable:
        key = self._options.key
        if callable(key):
            return call_key_function(key, message)
        return message.sharding_key if key is None else message.properties.get(key)

    def _letter_of(self, message: MessageExt, broker_name: str) -> _Letter | None:
        """What a dead letter diverts; None where it has no mark."""
        mark = _MARK.fullmatch(message.properties.get(Property.DLQ_DIVERTED, ""))
        if mark is None:
            return None
        queue = MessageQueue(mark[1], broker_name, int(mark[2]))
        return _Letter(queue, int(mark[3]), self._key_of(message))

    def _index(self) -> None:
        """Make the index anew, beside the one that handlers' threads ask meanwhile."""
        first: dict[tuple[MessageQueue, Hashable], int] = {}
        sent: set[tuple[MessageQueue, int]] = set()
        for letter in chain(self._own, *(read.values() for read in self._read.values())):
            _add(letter, first, sent)
        self._first, self._sent = first, sent


def _add(
    letter: _Letter,
    first: dict[tuple[MessageQueue, Hashable], int],
    sent: set[tuple[MessageQueue, int]],
) -> None:
    """Note the place of a letter, and the first one of its key."""
    queue, offset, key = letter
    sent.add((queue, offset))
    if key is not None:
        first[queue, key] = min(offset, first.get((queue, key), offset))


def _has_come_back(message: MessageExt) -> bool:
    """Whether a message was read from the group's retry topic, and not from the queue it names."""
    return message.properties.get(Property.RETRY_TOPIC) == message.topic
