"""Transactions on asyncio: as a block, and with a function that says how it ends.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import asyncio
import os

from cometmq import AsyncProducer, Message, MessageExt, TransactionState

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
booked: set[str] = set()


async def check(message: MessageExt) -> bool:
    """A broker heard nothing of this message: was the seat booked?"""
    return message.keys[0] in booked


async def book(message: Message) -> bool | None:
    """The local transaction: True commits, False rolls back, None leaves it to `check`."""
    seat = str(message.keys)
    await asyncio.sleep(0.01)  # the database
    if seat in booked:
        return False
    booked.add(seat)
    return True


async def main() -> None:
    """Book seats; a seat that is taken leaves no message."""
    async with AsyncProducer("example-bookings", namesrv=namesrv, check=check) as producer:
        ends = []
        for seat in ("12A", "12B", "12A"):
            done = await producer.send_in_transaction(Message("seats", b"1", keys=seat), book)
            ends.append(done.state)
            print(seat, done.state.name)
        assert ends == [
            TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK,
        ]  # fmt: skip

        async with producer.transaction() as tx:  # several messages, one fate
            for seat in ("14A", "14B"):
                await tx.send(Message("seats", b"together", keys=seat))
            booked.update(("14A", "14B"))
    print(len(booked), "seats")


asyncio.run(main())
