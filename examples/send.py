"""Send messages in every way: one, to a key's queue, later, without waiting, in bulk.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import json
import os

from cometmq import Message, Producer

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

with Producer("example-senders", namesrv=namesrv) as producer:
    # One message; the call returns when a broker has stored it.
    invoice = json.dumps({"number": 1, "amount": 99.5}).encode()
    result = producer.send(Message("invoices", invoice, tags="ISSUED", keys="invoice-1"))
    print("stored in", result.queue, "at", result.queue_offset, "as", result.msg_id)

    # Messages with the same sharding key share a queue and keep their order.
    for step in ("ISSUED", "PAID", "CLOSED"):
        producer.send(Message("invoices", step.encode(), tags=step, sharding_key="account-7"))

    # Held back by the broker for 1 s (level 1 of the default table).
    producer.send(Message("invoices", b"reminder", tags="REMIND", delay_level=1))

    # Begin now, look at the results later.
    futures = [
        producer.send_async(Message("invoices", b"%d" % number, tags="ISSUED"))
        for number in range(100)
    ]
    print("last of the futures:", futures[-1].result(timeout=10).status.name)

    # Many at once: the fast way. Retried until stored or the time is over; order is kept per key.
    messages = [
        Message("invoices", b"%d" % number, tags="ISSUED", sharding_key=f"account-{number % 10}")
        for number in range(10_000)
    ]
    results = producer.send_many(messages, timeout_s=60)
    print("stored", len(results), "in", len({result.queue for result in results}), "queues")
