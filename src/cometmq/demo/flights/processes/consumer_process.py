"""One consumer process: a member of a group that records every message it handles.

Owns the handler, the same for the orderly and the concurrent group; does not judge the order
(`order_audit` does). Invariant: the record of a message is written before the handler returns or
raises, and so before the message can be committed, parked or become a dead letter.
The handler refuses an ARRIVED without arrival time by raising. It sleeps `PAUSE_S` at one in
`pause_every` messages, like a handler that calls another service. Without these pauses threads
would seldom overtake one another, and the control group would prove little.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq import AsyncPushConsumer, ConsumeFrom, OnFailure, RetryLater
from cometmq.demo.flights.checks.observations import Observation, ObservationFile
from cometmq.demo.flights.events import ARRIVED, KINDS, SEQUENCE
from cometmq.demo.flights.processes.stop_signal import stop_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt

ATTEMPTS = 3
SUSPEND_MS = 100
DELAY_LEVEL = 1
PARKED_MAX = 50
"""Messages of a queue that are parked at most; then those of parked aircraft wait in the queue."""
PULL_BATCH = 256
PERSIST_S, REBALANCE_S = 1.0, 2.0
PAUSE_S = 0.03
_KIND_OF = {name: kind for kind, name in enumerate(KINDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArguments:
    """The only argument of a consumer process, as JSON."""

    namesrv: str
    topic: str
    group: str
    parks: bool
    """Whether it keeps the order of each aircraft, and parks one with a message it refuses."""
    state_dir: str
    """Where it notes what it has done of each key."""
    journal: str
    """The file of observations."""
    threads: int
    pause_every: int
    lock_valid_s: float
    """How long the client trusts a queue lock; shorter than the broker's expiry."""

    def as_text(self) -> str:
        """The arguments as JSON."""
        return json.dumps(asdict(self))


class RecordingHandler:
    """The handler. Safe to call from several threads at once."""

    def __init__(self, journal: ObservationFile, pause_every: int) -> None:
        self._journal = journal
        self._pause_every = pause_every

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        """Record the messages; raises RetryLater at an ARRIVED without arrival time."""
        seen: list[Observation] = []
        try:
            for message in messages:
                begin_ns = time.monotonic_ns()
                if self._pauses_at(message):
                    time.sleep(PAUSE_S)
                seen.append(_observe(message, begin_ns))
                _refuse(message, seen[-1])
        finally:
            self._journal.append(seen)

    async def on_loop(self, messages: Sequence[MessageExt]) -> None:
        """Do the same on the consumer's loop: of many keys a thread for each message costs more."""
        seen: list[Observation] = []
        try:
            for message in messages:
                begin_ns = time.monotonic_ns()
                if self._pauses_at(message):
                    await asyncio.sleep(PAUSE_S)
                seen.append(_observe(message, begin_ns))
                _refuse(message, seen[-1])
        finally:
            self._journal.append(seen)

    def _pauses_at(self, message: MessageExt) -> bool:
        return (message.queue_offset + int(message.properties[SEQUENCE])) % self._pause_every == 0


def _refuse(message: MessageExt, seen: Observation) -> None:
    if seen.refused:
        raise RetryLater(f"{message.keys[0]} arrived without arrival time", delay_level=DELAY_LEVEL)


def _observe(message: MessageExt, begin_ns: int) -> Observation:
    latency_ms = int(time.time() * 1000) - message.born_ms
    properties = message.properties
    kind = _KIND_OF[properties["TAGS"]]
    refused = kind == ARRIVED and not has_arrival_time(message.body)
    sequence = int(properties[SEQUENCE])
    return Observation(
        begin_ns,
        time.monotonic_ns() - begin_ns,
        latency_ms,
        message.queue_offset,
        sequence,
        message.queue_id,
        kind,
        refused,
        properties["__SHARDINGKEY"].encode(),
        properties["KEYS"].encode(),
    )


def has_arrival_time(body: bytes) -> bool:
    """Whether the JSON body of an ARRIVED has an arrival time."""
    return json.loads(body).get("arr_time") is not None


async def consume_and_record(arguments: ConsumerArguments) -> None:
    """Consume until SIGTERM, or until the job that started this process has ended."""
    journal = ObservationFile(Path(arguments.journal))
    consumer = AsyncPushConsumer(
        arguments.group,
        namesrv=arguments.namesrv,
        order="key" if arguments.parks else "none",
        on_failure=OnFailure.park(after=ATTEMPTS, count=PARKED_MAX) if arguments.parks else None,
        state_dir=arguments.state_dir,
        consume_threads=arguments.threads,
        max_attempts=ATTEMPTS,
        suspend_ms=SUSPEND_MS,
        consume_from=ConsumeFrom.FIRST,
        pull_batch_size=PULL_BATCH,
        persist_s=PERSIST_S,
        rebalance_s=REBALANCE_S,
        heartbeat_s=REBALANCE_S,
        lock_renew_s=arguments.lock_valid_s / 4,
        lock_valid_s=arguments.lock_valid_s,
    )
    handler = RecordingHandler(journal, arguments.pause_every)
    consumer.subscribe(arguments.topic, "*", handler.on_loop if arguments.parks else handler)
    ended = stop_event()
    async with consumer:
        await ended.wait()
    journal.close()


if __name__ == "__main__":
    asyncio.run(consume_and_record(ConsumerArguments(**json.loads(sys.argv[1]))))
