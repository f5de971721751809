"""One consumer process: follows every aircraft and writes down what it saw, message by message.

Owns the handler, the same for the orderly group and for the concurrent control; refuses to judge
the order (`audit`) and to know who else is in the group. Invariant: the record of a message is
written before the handler returns or raises, so before the message can be committed or buried.
The handler refuses an ARRIVED without arrival time by raising. One in `pause_every` messages takes
it `PAUSE_S`, as a handler that talks to somebody does: without that, threads would seldom overtake
one another, and the control would prove little.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq import AsyncPushConsumer, ConsumeFrom, RetryLater
from cometmq.demo.flights.events import ARRIVED, KINDS, SEQUENCE
from cometmq.demo.flights.observations import Journal, Observation
from cometmq.demo.flights.stop_signal import end_of_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq import MessageExt

ATTEMPTS = 3
SUSPEND_MS = 100
DELAY_LEVEL = 1
PULL_BATCH = 256
PERSIST_S, REBALANCE_S = 1.0, 2.0
PAUSE_S = 0.03
_KIND_OF = {name: kind for kind, name in enumerate(KINDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one consumer process is told, as its only argument."""

    namesrv: str
    topic: str
    group: str
    orderly: bool
    journal: str
    """The file of observations."""
    threads: int
    pause_every: int
    lock_valid_s: float
    """How long a queue lock counts here; shorter than its life at the broker."""

    def as_argument(self) -> str:
        """The text to start the process with."""
        return json.dumps(asdict(self))


class Follower:
    """The handler. May be called from several threads at once."""

    def __init__(self, journal: Journal, pause_every: int) -> None:
        self._journal, self._pause_every = journal, pause_every

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        """Write down what came; raises RetryLater at an ARRIVED without arrival time."""
        seen: list[Observation] = []
        try:
            for message in messages:
                seen.append(_observe(message, self._pause_every))
                if seen[-1].refused:
                    raise RetryLater(
                        f"{message.keys[0]} arrived without arrival time", delay_level=DELAY_LEVEL
                    )
        finally:
            self._journal.append(seen)


def _observe(message: MessageExt, pause_every: int) -> Observation:
    begin_ns = time.monotonic_ns()
    latency_ms = int(time.time() * 1000) - message.born_ms
    properties = message.properties
    kind = _KIND_OF[properties["TAGS"]]
    refused = kind == ARRIVED and not has_arrival_time(message.body)
    sequence = int(properties[SEQUENCE])
    if (message.queue_offset + sequence) % pause_every == 0:
        time.sleep(PAUSE_S)
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
    """Whether the JSON body of an ARRIVED says when."""
    return json.loads(body).get("arr_time") is not None


async def follow(order: Order) -> None:
    """Consume until SIGTERM, or until the job that started this process is gone."""
    journal = Journal(Path(order.journal))
    consumer = AsyncPushConsumer(
        order.group,
        namesrv=order.namesrv,
        orderly=order.orderly,
        consume_threads=order.threads,
        max_attempts=ATTEMPTS,
        suspend_ms=SUSPEND_MS,
        consume_from=ConsumeFrom.FIRST,
        pull_batch_size=PULL_BATCH,
        persist_s=PERSIST_S,
        rebalance_s=REBALANCE_S,
        heartbeat_s=REBALANCE_S,
        lock_renew_s=order.lock_valid_s / 4,
        lock_valid_s=order.lock_valid_s,
    )
    consumer.subscribe(order.topic, "*", Follower(journal, order.pause_every))
    ended = end_of_work()
    async with consumer:
        await ended.wait()
    journal.close()


if __name__ == "__main__":
    asyncio.run(follow(Order(**json.loads(sys.argv[1]))))
