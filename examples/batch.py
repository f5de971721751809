"""Many messages in few requests, and a handler that gets many at once.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import threading
from collections.abc import Sequence

from cometmq import ConsumeFrom, Message, MessageExt, PartlySent, Producer, PushConsumer

COUNT = 5_000
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
total, sizes, lock, complete = 0, [], threading.Lock(), threading.Event()


def add(messages: Sequence[MessageExt]) -> None:
    """One call for up to 64 messages of a queue."""
    global total
    with lock:
        total += sum(int(message.body) for message in messages)
        sizes.append(len(messages))
        if sum(sizes) >= COUNT + 100:
            complete.set()


with Producer("example-tills", namesrv=namesrv) as producer:
    # One topic, one request: all in one queue, side by side.
    till = [Message("sales", b"1", tags="TILL") for _ in range(100)]
    results = producer.send_batch(till)
    print("one batch:", len(results), "messages in", {result.queue.queue_id for result in results})

    # Any number: cut into requests, spread over the queues, tried again until the time is over.
    web = [Message("sales", b"2", tags="WEB", sharding_key=f"c{n % 50}") for n in range(COUNT)]
    try:
        results = producer.send_many(web, timeout_s=60)
    except PartlySent as error:
        missing = [web[n] for n, result in enumerate(error.results) if result is None]
        raise SystemExit(f"{len(missing)} are to be sent again") from error
    print("many:", len(results), "messages in", {result.queue.queue_id for result in results})

consumer = PushConsumer(
    "example-bookkeepers", namesrv=namesrv, batch_size=64, consume_from=ConsumeFrom.FIRST
)
consumer.subscribe("sales", "*", add)
with consumer:
    assert complete.wait(60), "the messages did not come"
print("sum", total, "in", len(sizes), "calls")
assert total >= 100 + 2 * COUNT
