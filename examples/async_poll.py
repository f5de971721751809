"""`async for` over messages, and the same program going on where it stopped.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import asyncio
import os

from cometmq import AsyncLitePullConsumer, AsyncProducer, Message

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def read(count: int) -> list[int]:
    """The next so many messages of the group; leaving the block commits them."""
    consumer = AsyncLitePullConsumer("example-walkers", namesrv=namesrv, consume_from="first")
    consumer.subscribe("steps")
    found: list[int] = []
    async with consumer, asyncio.timeout(60):
        async for message in consumer:
            found.append(int(message.body))
            if len(found) == count:
                break
    return found


async def main() -> None:
    """Send ten, read four, then the other six."""
    async with AsyncProducer("example-feet", namesrv=namesrv) as producer:
        for number in range(10):
            await producer.send(Message("steps", b"%d" % number))
    first, rest = await read(4), await read(6)
    print("first", first, "then", rest)
    assert sorted(first + rest) == list(range(10))


asyncio.run(main())
