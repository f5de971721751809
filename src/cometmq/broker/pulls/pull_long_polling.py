"""Held pulls: pulls that found nothing and wait for a message that they want.

Owns what wakes a held pull: an arrival in its queue past its offset, with a tags code that it
wants, and, if it has a property filter, with properties that it wants. The pull handler answers it.
Java: PullRequest (of longpolling), PullRequestHoldService.notifyMessageArriving.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.pulls.held_requests import HeldRequest, WakeDecision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.pulls.held_requests import HeldRequests
    from cometmq.broker.pulls.pull_check import MessageFilter
    from cometmq.broker.pulls.pull_reader import PullReader
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Answer
    from cometmq.settings.broker import BrokerSettings
    from cometmq.wire.command import Command
    from cometmq.wire.headers.pull import PullMessageRequestHeader

    AnswerPull = Callable[["HeldPull"], Answer | Awaitable[Answer]]

SUSPEND_MS_MAX = 5 * 60_000
"""Longest that a pull is held, whatever it asks for."""


LOOKED_AT_MAX = 4_096
"""Held pulls that one question for a group's readers looks at."""
_FILTER_BYTES = 32
"""What a held pull keeps for each character of its filter, where each tag is one letter."""


class ArrivalEvent(NamedTuple):
    """Messages of one tags code came to a queue, which now ends at `max_offset`."""

    max_offset: int
    tags_code: int


class HeldPull(HeldRequest):
    """One held pull; its key is its queue. Each arrived message is checked once."""

    __slots__ = ("_answer", "_checked_until", "_end", "_reader", "header", "message_filter")

    def __init__(
        self,
        header: PullMessageRequestHeader,
        request: Command,
        connection: Connection,
        message_filter: MessageFilter,
        reader: PullReader,
        answer: AnswerPull,
    ) -> None:
        super().__init__(request, connection)
        request.body, request.ext = b"", {}  # nobody looks at them again; they may be large
        self.header = header
        self.kept_bytes = _FILTER_BYTES * len(header.subscription or "")
        self.message_filter = message_filter
        self._reader = reader
        self._answer = answer
        self._checked_until = header.queue_offset
        self._end = header.queue_offset

    @property
    def keys(self) -> tuple[tuple[str, int]]:
        """Its queue: topic and queue id."""
        return ((self.header.topic, self.header.queue_id),)

    def on_event(self, event: object) -> WakeDecision:
        """Wake for an arrival past the offset whose tags code is wanted."""
        assert isinstance(event, ArrivalEvent)
        if event.max_offset <= self.header.queue_offset:
            return WakeDecision.IGNORE
        matches, new_property_filter = self.message_filter
        if matches is not None and not matches(event.tags_code):
            return WakeDecision.IGNORE
        if new_property_filter is None:
            return WakeDecision.ANSWER
        self._end = event.max_offset
        return WakeDecision.RECHECK

    def recheck(self) -> bool:
        """Whether the property filter wants any message that was not checked yet."""
        start = self._checked_until
        self._checked_until = self._end
        topic, queue_id = self.header.topic, self.header.queue_id
        return self._reader.is_any_wanted(topic, queue_id, start, self._end, self.message_filter)

    def answer(self) -> Answer | Awaitable[Answer]:
        """Answer as the pull handler does for a pull that may not be held again."""
        return self._answer(self)


class HeldPulls:
    """Holds pulls for as long as they ask and the settings allow."""

    def __init__(self, held_requests: HeldRequests, settings: BrokerSettings) -> None:
        self._held_requests = held_requests
        self._settings = settings
        self._queue_ids: dict[str, set[int]] = {}
        """Queues on which pulls were held since their topic changed; there is no other way in."""

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def hold(self, held: HeldPull) -> None:
        """Hold a pull; raises Reject (SYSTEM_BUSY) when there are too many."""
        settings = self._settings
        timeout_ms = (
            min(held.header.suspend_timeout_ms, SUSPEND_MS_MAX)
            if settings.long_polling_enable
            else settings.short_polling_time_ms
        )
        self._held_requests.hold(held, timeout_ms)
        self._queue_ids.setdefault(held.header.topic, set()).add(held.header.queue_id)

    def readers(self, group: str, topic: str) -> set[Connection]:
        """The connections on which pulls of the group are held now, on any queue of the topic.

        Looks at `LOOKED_AT_MAX` pulls.
        """
        waiting = (
            held
            for queue_id in self._queue_ids.get(topic, ())
            for held in self._held_requests.waiting((topic, queue_id))
        )
        return {
            held.connection
            for held in islice(waiting, LOOKED_AT_MAX)
            if isinstance(held, HeldPull) and held.header.consumer_group == group
        }

    def notify_arrival(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """Wake the pulls that want what arrived."""
        key = (topic, queue_id)
        if self._held_requests.has_key(key):
            self._held_requests.notify(key, ArrivalEvent(max_offset, tags_code), tags_code)

    def wake_topic(self, topic: str) -> None:
        """Answer all pulls of a topic: it changed or was deleted, or its offsets were reset."""
        queue_ids = self._queue_ids.pop(topic, ())
        self._held_requests.wake_keys([(topic, queue_id) for queue_id in queue_ids])
