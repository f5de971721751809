"""Messages for later: the broker keeps them until their time.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import threading
import time
from collections.abc import Sequence

from cometmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer

IN_1_S = 1  # a level of the broker's table: 1s 5s 10s 30s 1m 2m ... 2h
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
came: dict[bytes, float] = {}
complete = threading.Event()


def remind(messages: Sequence[MessageExt]) -> None:
    """Note how long after its birth each came."""
    for message in messages:
        came[message.body] = time.time() - message.born_ms / 1000
        if len(came) == 2:
            complete.set()


consumer = PushConsumer("example-reminders", namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
consumer.subscribe("appointments", "*", remind)
with Producer("example-calendar", namesrv=namesrv) as producer, consumer:
    producer.send(Message("appointments", b"coffee", delay_level=IN_1_S))
    producer.send(Message("appointments", b"water"))
    assert complete.wait(60), "the messages did not come"
for body, after_s in came.items():
    print(f"{body.decode()} after {after_s:.1f} s")
assert list(came) == [b"water", b"coffee"]
