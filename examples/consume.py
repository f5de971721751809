"""Receive messages as a member of a group; what fails comes again, then becomes a dead letter.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
Start it several times: the members of the group share the queues. Ctrl-C stops it cleanly.
"""

import os
from collections.abc import Sequence
from threading import Event

from cometmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer, RetryLater

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
handled, enough = [], Event()


def ship(messages: Sequence[MessageExt]) -> None:
    """Returning means done. Raising means: give me these messages again, later."""
    for message in messages:
        if message.body == b"lost" and message.reconsume_times == 0:
            raise RetryLater("the label printer jams", delay_level=1)  # again in 1 s
        print(message.tags, message.body, "attempt", message.reconsume_times + 1)
        handled.append(message.msg_id)  # delivery is at least once: msg_id tells repeats
        if len(set(handled)) >= 4:
            enough.set()


consumer = PushConsumer(
    "example-shippers",
    namesrv=namesrv,
    consume_threads=8,
    max_attempts=5,
    consume_from=ConsumeFrom.FIRST,
)
consumer.subscribe("parcels", "PACKED || RETURNED", ship)

with Producer("example-packers", namesrv=namesrv) as producer:
    for body in (b"book", b"lost", b"lamp"):
        producer.send(Message("parcels", body, tags="PACKED"))
    producer.send(Message("parcels", b"not for shippers", tags="CANCELLED"))
    producer.send(Message("parcels", b"shoes", tags="RETURNED"))

with consumer:  # starts on entry; on exit finishes what is in hand, then commits
    enough.wait(60)
assert len(set(handled)) >= 4, "the messages did not come"
