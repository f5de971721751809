"""GET_TIMER_CHECK_POINT and GET_TIMER_METRICS (60, 61): how far the timers are, and how many wait.

Java: AdminBrokerProcessor.getTimerCheckPoint, getTimerMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.endpoint import Endpoint
from cometmq.net.handler import Reply
from cometmq.store.timers.timer_checkpoint import encode_progress
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.delivery.timer_messages import TimerMessages
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


class TimerRequests:
    """Answers 60 and 61."""

    def __init__(self, timer_messages: TimerMessages, now_ms: Callable[[], int]) -> None:
        self._timer_messages = timer_messages
        self._now_ms = now_ms

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.GET_TIMER_CHECK_POINT, self.checkpoint),
            Endpoint(RequestCode.GET_TIMER_METRICS, self.metrics),
        )

    def checkpoint(self, _request: Command, _connection: Connection) -> Reply:
        """Tell how far the timers are (60)."""
        now_ms = self._now_ms()
        return Reply(body=encode_progress(self._timer_messages.progress(), now_ms, now_ms))

    def metrics(self, _request: Command, _connection: Connection) -> Reply:
        """Tell how many timers wait for each topic (61)."""
        return Reply(body=self._timer_messages.metrics())
