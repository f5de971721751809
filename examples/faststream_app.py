"""A FastStream application: models in, models out, and a reply.

Needs a broker: `cometmq standalone --store var/store`, and `pip install 'cometmq[faststream]'`.
`faststream run faststream_app:app` would run it until a signal; here it ends by itself.
"""

import asyncio
import os

from pydantic import BaseModel

from cometmq.faststream import CometBroker
from faststream import FastStream

broker = CometBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), group="example-stream")
app = FastStream(broker)


class Order(BaseModel):
    """What comes in."""

    number: int
    items: list[str]


@broker.subscriber("stream-orders", consume_from="first", order="queue")
@broker.publisher("stream-bills")
async def bill(order: Order) -> dict[str, int]:
    """Make a bill of an order."""
    return {"order": order.number, "items": len(order.items)}


@broker.subscriber("stream-bills", consume_from="first")
async def done(of: dict[str, int]) -> None:
    """End the example."""
    print("bill", of)
    app.exit()


@app.after_startup
async def ask() -> None:
    """Send an order once all is started."""
    await broker.publish(Order(number=7, items=["tea", "cake"]), "stream-orders", sharding_key="7")


asyncio.run(app.run())
