"""Ask whoever consumes a topic, and wait for the answer.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
from collections.abc import Sequence

from cometmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer, RemotingTimeout

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
stock = {b"lamp": 7, b"chair": 0}
asking = Producer("example-shop", namesrv=namesrv)
answering = Producer("example-stock", namesrv=namesrv)


def answer(messages: Sequence[MessageExt]) -> None:
    """The answer goes through the broker straight back to the client that asked."""
    for message in messages:
        if message.body in stock:
            answering.reply(message, b"%d" % stock[message.body])


consumer = PushConsumer("example-clerks", namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
consumer.subscribe("questions-of-stock", "*", answer)

with asking, answering, consumer:
    for thing in stock:
        reply = asking.request(Message("questions-of-stock", thing), timeout_s=30)
        print(thing.decode(), "left:", int(reply.body))
        assert int(reply.body) == stock[thing]
    try:
        asking.request(Message("questions-of-stock", b"a unicorn"), timeout_s=0.5)
    except RemotingTimeout as error:
        print("no answer:", error)
