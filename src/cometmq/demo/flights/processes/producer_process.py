"""One producer process: sends the events of its file in order until all are stored.

Invariant: a chunk is sent only after every message of the previous chunk was stored, and within a
chunk the client keeps each queue's order; so every sharding key stays in order even when the
broker is killed and restarted. A batch whose response was lost is sent again with the same
UNIQ_KEY: at least once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq import AsyncProducer, Message
from cometmq.demo.flights import event_files
from cometmq.demo.flights.events import KINDS, SEQUENCE
from cometmq.demo.flights.processes.stop_signal import run_until_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.demo.flights.events import Event

CHUNK = 2048
_AWAY_S = 60.0
"""How long a broker may be away before the producer gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerArguments:
    """The only argument of a producer process, as JSON."""

    namesrv: str
    topic: str
    events: str
    """The file of events."""
    counter: str
    """The file that holds the number of stored messages, 8 bytes big-endian."""
    summary: str
    """Written at the end, as JSON: messages, begin and end on the monotonic clock, ns."""
    per_second: float
    """At most so many messages a second; 0 means no limit."""

    def as_text(self) -> str:
        """The arguments as JSON."""
        return json.dumps(asdict(self))


async def produce(arguments: ProducerArguments) -> None:
    """Send everything, then write the summary."""
    begin_s, stored = time.monotonic(), 0
    counter = os.open(arguments.counter, os.O_WRONLY | os.O_CREAT, 0o644)
    producer = AsyncProducer("flights-producers", namesrv=arguments.namesrv)
    async with producer:
        for chunk in _chunks(
            event_files.read(Path(arguments.events)), _chunk_size(arguments.per_second)
        ):
            results = await producer.send_many(
                [message_of(arguments.topic, event) for event in chunk], timeout_s=_AWAY_S
            )
            stored += len(results)
            os.pwrite(counter, stored.to_bytes(8, "big"), 0)
            if arguments.per_second:
                await asyncio.sleep(begin_s + stored / arguments.per_second - time.monotonic())
    os.close(counter)
    summary = {"messages": stored, "begin_ns": int(begin_s * 1e9), "end_ns": time.monotonic_ns()}
    Path(arguments.summary).write_text(json.dumps(summary))


def message_of(topic: str, event: Event) -> Message:
    """The message that carries an event."""
    kind, flight_id, sharding_key, sequence, body = event
    return Message(
        topic,
        body.encode(),
        tags=KINDS[kind],
        keys=flight_id,
        properties={SEQUENCE: str(sequence)},
        sharding_key=sharding_key,
    )


def stored_so_far(counter: Path) -> int:
    """The number in a producer's counter file; 0 before its first message."""
    try:
        return int.from_bytes(counter.read_bytes(), "big")
    except FileNotFoundError:
        return 0


def _chunks(events: Iterator[Event], size: int) -> Iterator[list[Event]]:
    while chunk := list(islice(events, size)):
        yield chunk


def _chunk_size(per_second: float) -> int:
    """The messages of a tenth of a second when the rate is limited."""
    return min(CHUNK, max(16, int(per_second / 10))) if per_second else CHUNK


if __name__ == "__main__":
    asyncio.run(run_until_stopped(produce(ProducerArguments(**json.loads(sys.argv[1])))))
