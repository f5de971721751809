"""CPU of an awaited send without middleware, with an empty hook, and traced, in turns.

    python bench/tracing_cost.py

One process sends 128 bytes in 32 tasks to a broker in another one; 15 rounds, each of every kind.
CPU is that of the sending process, so other load disturbs it only by its caches. "api only" is
Tracing without an SDK, "sdk" with one that records each span and exports it nowhere.
"""

import asyncio
import time
from statistics import median

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from cometmq import AsyncProducer, Message, Middleware
from cometmq.otel import Tracing
from cometmq.testing.cluster import LocalCluster

TASKS, SENDS, ROUNDS = 32, 60, 15


class Hook(Middleware):
    """The least that a middleware can be."""

    def before_send(self, message, context):
        """Do nothing."""


async def measure(namesrv: str) -> None:
    kinds = {
        "none": [],
        "hook": [Hook()],
        "api only": [Tracing(NoOpTracerProvider())],
        "sdk": [Tracing(TracerProvider())],
    }
    producers, spent = {}, {name: [] for name in kinds}
    for name, middleware in kinds.items():
        producer = AsyncProducer(name.replace(" ", "-"), namesrv=namesrv, middleware=middleware)
        await producer.start()
        await producer.send(Message("Cost", b"x" * 128))
        producers[name] = producer
    for _ in range(ROUNDS):
        for name, producer in producers.items():
            begun = time.process_time()
            await asyncio.gather(*(send(producer) for _ in range(TASKS)))
            spent[name].append((time.process_time() - begun) / (TASKS * SENDS) * 1e6)
    for name, found in spent.items():
        print(f"{name:10}{min(found):8.2f} best{median(found):8.2f} median, us of CPU a send")
    for producer in producers.values():
        await producer.stop()


async def send(producer: AsyncProducer) -> None:
    for _ in range(SENDS):
        await producer.send(Message("Cost", b"x" * 128))


if __name__ == "__main__":
    with LocalCluster() as cluster:
        asyncio.run(measure(cluster.namesrv))
