"""Keeps a producer away from brokers that are slow or gone, and looks whether that is over.

Owns the clock and the probes of the latency-fault strategy; the decisions are in
`rules/latency_fault_tolerance`. Invariant: a probe never counts as a send.
Java: MQFaultStrategy, LatencyFaultToleranceImpl.detectByOneRound
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, CometError, RemotingError
from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.rules.latency_fault_tolerance import TABLES, LatencyFaults
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.offset import GetMaxOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.session.client_options import ProducerOptions
    from cometmq.client.session.client_session import Core
    from cometmq.model.queue import MessageQueue

PROBE_S, PROBE_TIMEOUT_S = 2.0, 0.2


class Faults:
    """The strategy of one started producer. One loop owns it."""

    def __init__(self, core: Core, options: ProducerOptions) -> None:
        self._core, self._loop = core, asyncio.get_running_loop()
        table = TABLES[options.latency_fault]
        self._health = LatencyFaults(table, detects=options.detect_faults)
        if options.detect_faults:
            core.background.every(PROBE_S, self._probe_all, name="probes")

    def choose(self, queues: Sequence[MessageQueue], turn: int, avoid: str | None) -> MessageQueue:
        """The next queue on a broker that is fine, else the best that can be had."""
        return self._health.choose(queues, turn, avoid, self._now_ms())

    def answered(self, broker_name: str, begun: float) -> None:
        """Note a send that went well; `begun` is the loop's time."""
        now_ms = self._now_ms()
        self._health.answered(broker_name, now_ms - begun * 1000, now_ms)

    def failed(self, broker_name: str, error: CometError) -> None:
        """Note a send that did not."""
        was_reached = isinstance(error, BrokerError)
        self._health.failed(broker_name, self._now_ms(), was_reached=was_reached)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    async def _probe_all(self) -> None:
        await asyncio.gather(*(self._probe(name) for name in self._health.unreachable()))

    async def _probe(self, broker_name: str) -> None:
        header = GetMaxOffsetRequestHeader(topic=DEFAULT_TOPIC, queue_id=0)
        try:
            addr = self._core.routes.master(broker_name)
            await self._core.call(
                addr, request(RequestCode.GET_MAX_OFFSET, 0, header), PROBE_TIMEOUT_S
            )
        except RemotingError:
            return
        self._health.reached(broker_name)
