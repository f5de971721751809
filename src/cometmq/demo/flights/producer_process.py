"""One producer process: sends the events of its file, in their order, until all are stored.

Owns the sending; refuses to know which events are whose (`spool`) and who kills the broker.
Invariant: a chunk is sent only after every message of the one before was stored, and within a
chunk the client keeps each queue's order; so the order of every sharding key holds through a
broker that dies and comes back. A batch whose answer was lost is stored again under the same
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
from cometmq.demo.flights.stop_signal import do_until_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.demo.flights.events import Event

CHUNK = 2048
_AWAY_S = 60.0
"""How long a broker may be away before the producer gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one producer process is told, as its only argument."""

    namesrv: str
    topic: str
    events: str
    """The file of events."""
    counter: str
    """The file in which the number of stored messages stands, 8 bytes big-endian."""
    summary: str
    """Written at the end, as JSON: messages, begin and end on the monotonic clock, ns."""
    per_second: float
    """At most so many messages a second; 0 is as fast as it goes."""

    def as_argument(self) -> str:
        """The text to start the process with."""
        return json.dumps(asdict(self))


async def produce(order: Order) -> None:
    """Send everything, then write the summary."""
    begin_s, stored = time.monotonic(), 0
    counter = os.open(order.counter, os.O_WRONLY | os.O_CREAT, 0o644)
    producer = AsyncProducer("flights-producers", namesrv=order.namesrv)
    async with producer:
        for chunk in _chunks(event_files.read(Path(order.events)), _chunk_size(order.per_second)):
            results = await producer.send_many(
                [message_of(order.topic, event) for event in chunk], timeout_s=_AWAY_S
            )
            stored += len(results)
            os.pwrite(counter, stored.to_bytes(8, "big"), 0)
            if order.per_second:
                await asyncio.sleep(begin_s + stored / order.per_second - time.monotonic())
    os.close(counter)
    summary = {"messages": stored, "begin_ns": int(begin_s * 1e9), "end_ns": time.monotonic_ns()}
    Path(order.summary).write_text(json.dumps(summary))


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
    """What a producer's counter file says; 0 before its first message."""
    try:
        return int.from_bytes(counter.read_bytes(), "big")
    except FileNotFoundError:
        return 0


def _chunks(events: Iterator[Event], size: int) -> Iterator[list[Event]]:
    while chunk := list(islice(events, size)):
        yield chunk


def _chunk_size(per_second: float) -> int:
    """A tenth of a second's worth when there is a speed to keep."""
    return min(CHUNK, max(16, int(per_second / 10))) if per_second else CHUNK


if __name__ == "__main__":
    asyncio.run(do_until_end(produce(Order(**json.loads(sys.argv[1])))))
