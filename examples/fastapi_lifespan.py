"""A FastAPI service that sends what it is asked to, and consumes in the same process.

The lifespan starts the clients before the first request and stops them after the last one: what is
in hand is finished and committed. `uvicorn` would serve `app`; here a client in memory calls it.
Needs a broker: `cometmq standalone --store var/store`, and `pip install fastapi httpx`.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI, HTTPException

from cometmq import AsyncProducer, AsyncPushConsumer, CometError, Received, Topic
from cometmq.serializers import Typed

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


@dataclass
class Booking:
    """What is sent and consumed."""

    seat: str


bookings = Topic("web-bookings", Typed(Booking))
producer = AsyncProducer("web", namesrv=namesrv)
consumer = AsyncPushConsumer("web-bookers", namesrv=namesrv, consume_from="first")
booked: list[str] = []


@consumer.handler(bookings.name)
@bookings.each
async def book(one: Received[Booking]) -> None:
    """Handle one booking."""
    booked.append(one.value.seat)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Clients live as long as the service."""
    async with producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/bookings/{seat}", status_code=202)
async def ask(seat: str) -> dict[str, str]:
    """Send a booking; 503 where no broker has stored it in time."""
    try:
        sent = await producer.send(bookings.message(Booking(seat), sharding_key=seat))
    except CometError as error:
        raise HTTPException(503, str(error)) from error
    return {"msg_id": sent.msg_id}


async def main() -> None:
    """Call the service as a client would."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://web") as client,
    ):
        for seat in ("1A", "1B"):
            answer = await client.post(f"/bookings/{seat}")
            answer.raise_for_status()
        async with asyncio.timeout(60):
            while len(booked) < 2:
                await asyncio.sleep(0.01)
    print("booked", sorted(booked))


asyncio.run(main())
