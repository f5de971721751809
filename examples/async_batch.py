"""Batches side by side on asyncio: the fastest way to send.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import asyncio
import os
import time

from cometmq import AsyncProducer, Message

BATCHES, SIZE = 64, 128
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    """Send 8,192 messages, eight batches under way at a time."""
    places = asyncio.Semaphore(8)

    async def send(number: int) -> int:
        async with places:
            batch = [Message("ticks", b"%d.%d" % (number, n)) for n in range(SIZE)]
            return len(await producer.send_batch(batch, timeout_s=30.0))

    async with AsyncProducer("example-exchange", namesrv=namesrv) as producer:
        began = time.perf_counter()
        sent = sum(await asyncio.gather(*map(send, range(BATCHES))))
        took = time.perf_counter() - began
    print(f"{sent} messages in {took:.2f} s")
    assert sent == BATCHES * SIZE


asyncio.run(main())
