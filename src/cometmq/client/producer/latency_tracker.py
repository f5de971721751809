"""Keeps a producer away from brokers that are slow or unreachable, and probes whether they recover.

Owns the clock and the probes of the latency-fault strategy; the decisions are in
`rules/failures/latency_fault_tolerance`. Invariant: a probe never counts as a send.
Java: MQFaultStrategy, LatencyFaultToleranceImpl.detectByOneRound
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import BrokerError, CometError, RemotingError
from cometmq.model.topic import DEFAULT_TOPIC
from cometmq.rules.failures.latency_fault_tolerance import (
    TABLES,
    LatencyFaultTolerance,
    LatencyTable,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.offset import GetMaxOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

PROBE_INTERVAL_S = 2.0
PROBE_TIMEOUT_S = 0.2


class LatencyTracker:
    """The latency-fault strategy of one started producer. One loop owns it."""

    def __init__(self, session: ClientSession, options: ProducerOptions) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        given = options.latency_fault
        table = given if isinstance(given, LatencyTable) else TABLES[given]
        self._faults = LatencyFaultTolerance(table, detects=options.detect_faults)
        if options.detect_faults:
            session.background.every(PROBE_INTERVAL_S, self._probe_all, name="probes")

    def choose(self, queues: Sequence[MessageQueue], turn: int, avoid: str | None) -> MessageQueue:
        """The next queue on a healthy broker, else the best there is."""
        return self._faults.choose(queues, turn, avoid, self._loop_ms())

    def avoidance(self, broker_name: str) -> tuple[float, bool]:
        """For how many seconds a broker is avoided from now on, and whether it is reachable."""
        until_ms, is_reachable = self._faults.avoidance(broker_name)
        return max(until_ms - self._loop_ms(), 0.0) / 1000, is_reachable

    def record_success(self, broker_name: str, begun: float) -> None:
        """Note the latency of a send that succeeded; `begun` is the loop's time."""
        now_ms = self._loop_ms()
        self._faults.record_latency(broker_name, now_ms - begun * 1000, now_ms)

    def record_failure(self, broker_name: str, error: CometError) -> None:
        """Note a send that failed; a broker that answered with an error was reached."""
        was_reached = isinstance(error, BrokerError)
        self._faults.record_failure(broker_name, self._loop_ms(), was_reached=was_reached)

    def _loop_ms(self) -> float:
        return self._loop.time() * 1000

    async def _probe_all(self) -> None:
        await asyncio.gather(*(self._probe(name) for name in self._faults.unreachable_brokers()))

    async def _probe(self, broker_name: str) -> None:
        header = GetMaxOffsetRequestHeader(topic=DEFAULT_TOPIC, queue_id=0)
        try:
            addr = self._session.routes.master_addr(broker_name)
            await self._session.call(
                addr, request(RequestCode.GET_MAX_OFFSET, 0, header), PROBE_TIMEOUT_S
            )
        except RemotingError:
            return
        self._faults.record_reachable(broker_name)
