"""Waits for messages at the ends of queues: a pull is held at each, so that waiting costs nothing.

A broker answers a held pull when a message comes (long polling, which Apache's has, too). Owns
connections of its own, because answers come when they come. Does not say what came: whoever is
woken asks for the positions.
Invariant: `wait` returns False only while a pull is held at the end of every queue that is watched;
it may return True without cause. Used by one thread.
Java: DefaultMQPushConsumerImpl.pullMessage, PullRequestHoldService.
"""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import SUBSCRIPTION, SUSPEND, PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.model.queue import MessageQueue
    from cometmq.net.blocking_channel import BlockingChannel
    from cometmq.spark.source.source_options import SourceOptions
    from cometmq.wire.command import Command

QUEUES_MAX = 512
"""More queues are not watched."""
HOLD_MS = 15_000
"""A pull is held so long, then asked again: also what keeps an idle connection open."""


class ArrivalWatch:
    """Held pulls at the ends of queues; `address_of` says where the broker of a name is."""

    def __init__(self, options: SourceOptions, address_of: Callable[[str], str]) -> None:
        self._options = options
        self._address_of = address_of
        self._channels: dict[str, BlockingChannel] = {}
        self._held: dict[tuple[str, int], MessageQueue] = {}
        self._ends: dict[MessageQueue, int] = {}

    def begin(self, ends: Mapping[MessageQueue, int]) -> bool:
        """Watch these queues at these offsets; False when they are too many or cannot be asked."""
        if not 0 < len(ends) <= QUEUES_MAX:
            return False
        if self._ends.keys() - ends.keys():
            self.close()
        self._ends.update(ends)
        held = set(self._held.values())
        try:
            self._hold([queue for queue in ends if queue not in held])
        except CometError:
            self.close()
        return bool(self._held)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a queue has more messages, or something is wrong; False after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        try:
            while self._held:
                left_s = deadline - time.monotonic()
                if left_s < 0:
                    return False
                if self._take(left_s):
                    return True
        except CometError:
            self.close()
        return True

    def close(self) -> None:
        """End the watch, and close its connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._held.clear()
        self._ends.clear()

    def _take(self, timeout_s: float) -> bool:
        """Take the answers that come in time; whether one of them is news."""
        has_news, again = False, []
        with selectors.DefaultSelector() as selector:
            for addr, channel in self._channels.items():
                selector.register(channel, selectors.EVENT_READ, addr)
            for key, _ in selector.select(timeout_s):
                for opaque, answer in self._channels[key.data].receive().items():
                    queue = self._held.pop((key.data, opaque))
                    if self._is_news(queue, answer):
                        has_news = True
                    else:
                        again.append(queue)
        self._hold(again)
        return has_news

    def _is_news(self, queue: MessageQueue, answer: Command) -> bool:
        """Whether it says anything but that the time is up and the queue ends where it did."""
        said = answer.ext.get("nextBeginOffset")
        return answer.code != ResponseCode.PULL_NOT_FOUND or said != str(self._ends[queue])

    def _hold(self, queues: list[MessageQueue]) -> None:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_address.setdefault(self._address_of(queue.broker_name), []).append(queue)
        for addr, some in by_address.items():
            channel = self._channels.get(addr)
            if channel is None:
                options = self._options
                channel = options.security.channel(addr, options.timeout_ms / 1000)
                self._channels[addr] = channel
            headers = [self._header(queue) for queue in some]
            opaques = channel.post_all(RequestCode.PULL_MESSAGE, headers)
            for queue, opaque in zip(some, opaques, strict=True):
                self._held[addr, opaque] = queue

    def _header(self, queue: MessageQueue) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self._options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=self._ends[queue],
            max_msg_nums=1,
            sys_flag=SUBSCRIPTION | SUSPEND,
            suspend_timeout_ms=HOLD_MS,
            subscription="*",
            expression_type="TAG",
        )
