"""Keep the order of every key: sharding keys on one side, an orderly consumer on the other.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
A message that always fails holds its queue for its attempts, then becomes a dead letter that says
why (properties DLQ_REASON, DLQ_ATTEMPTS, DLQ_ORIGIN_TOPIC and more), and the queue goes on.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence

from cometmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, MessageExt

STEPS, FLIGHTS = 5, 20
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
seen: dict[str, list[int]] = defaultdict(list)


async def follow(messages: Sequence[MessageExt]) -> None:
    """Called for one batch of a queue at a time, in the queue's order."""
    for message in messages:
        if message.body == b"bad":
            raise ValueError("no such flight")
        seen[message.sharding_key or ""].append(int(message.body))


async def main() -> None:
    """Send the steps of all flights mixed up, and see each flight's steps in their order."""
    consumer = AsyncPushConsumer(
        "example-followers",
        namesrv=namesrv,
        orderly=True,
        max_attempts=2,
        suspend_ms=100,
        consume_from=ConsumeFrom.FIRST,
    )
    consumer.subscribe("flights", "*", follow)
    async with AsyncProducer("example-tower", namesrv=namesrv) as producer:
        for step in range(STEPS):
            await producer.send_many(
                Message("flights", b"%d" % step, sharding_key=f"flight-{flight}")
                for flight in range(FLIGHTS)
            )
        await producer.send(Message("flights", b"bad", sharding_key="flight-0"))
        await producer.send(Message("flights", b"%d" % STEPS, sharding_key="flight-0"))
    async with consumer, asyncio.timeout(60):
        while sum(map(len, seen.values())) < STEPS * FLIGHTS + 1:
            await asyncio.sleep(0.05)
    for flight, steps in sorted(seen.items()):
        assert steps == sorted(steps), f"{flight} went {steps}"
    print(len(seen), "flights, each in order; the bad message lies in %DLQ%example-followers")


asyncio.run(main())
