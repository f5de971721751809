"""What tests of several readers need: two brokers, readers of streams, a topic made anew."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cometmq.spark.source.stream_reader import StreamReader
from spark.scripted import Script, ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def two_brokers(topic: str = "T") -> Iterator[tuple[ScriptedBroker, ScriptedBroker]]:
    """A name server with broker-a, and broker-b, each with a queue of ten messages."""
    other = Script(broker="broker-b", topic=topic).fill(0, 10)
    with (
        ScriptedBroker(other) as second,
        ScriptedBroker(Script(peers=[second]).fill(0, 10)) as first,
    ):
        yield first, second


def reader_of(scripted: ScriptedBroker, **more: str) -> StreamReader:
    given = {"startingOffsets": "earliest", "retryForMs": "300", "idleWaitMs": "0", **more}
    return StreamReader(scripted.options(**given))


def queues(offsets: dict[str, Any]) -> dict[str, int]:
    """The offsets of topic T."""
    found = offsets["topics"].get("T", {})
    assert isinstance(found, dict)
    return found


def remake(script: Script, count: int) -> None:
    """Make the topic anew, a minute later, with so many messages in its only queue."""
    script.queues.clear()
    script.stored_ms.clear()
    script.stored_later_ms += 60_000
    script.fill(0, count)
