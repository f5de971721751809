"""Many questions at once on asyncio: each task waits for the answer to its own.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import asyncio
import os
from collections.abc import Sequence

from cometmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, MessageExt

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
squaring = AsyncProducer("example-squarers", namesrv=namesrv)


async def square(messages: Sequence[MessageExt]) -> None:
    """Answers come in any order; each finds the one who asked."""
    for message in messages:
        await squaring.reply(message, b"%d" % int(message.body) ** 2)


async def main() -> None:
    """Ask for twenty squares at once."""
    consumer = AsyncPushConsumer(
        "example-mathematicians", namesrv=namesrv, consume_from=ConsumeFrom.FIRST
    )
    consumer.subscribe("numbers-to-square", "*", square)
    asking = AsyncProducer("example-pupils", namesrv=namesrv)
    async with asking, squaring, consumer:
        questions = [Message("numbers-to-square", b"%d" % number) for number in range(20)]
        replies = await asyncio.gather(*(asking.request(one, 30.0) for one in questions))
    squares = [int(reply.body) for reply in replies]
    print(squares)
    assert squares == [number**2 for number in range(20)]


asyncio.run(main())
