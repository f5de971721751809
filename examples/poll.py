"""Take messages when the program wants them: poll, process, commit; then read one day again.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import time

from cometmq import LitePullConsumer, Message, Producer

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
began_ms = int(time.time() * 1000)

with Producer("example-meters", namesrv=namesrv) as producer:
    producer.send_many([Message("readings-to-poll", b"%d" % n, tags="POWER") for n in range(100)])

consumer = LitePullConsumer(
    "example-accountants", namesrv=namesrv, auto_commit=False, consume_from="first"
)
consumer.subscribe("readings-to-poll", "POWER")
total = count = 0
with consumer:
    while count < 100:
        batch = consumer.poll(timeout_s=5.0, max_count=50)  # of one queue, oldest first
        total += sum(int(message.body) for message in batch)
        count += len(batch)
        consumer.commit()  # only now is the batch done: a crash before this brings it again
print(count, "readings, together", total)

with LitePullConsumer("example-auditors", namesrv=namesrv) as auditor:
    for queue in auditor.fetch_message_queues("readings-to-poll"):
        offset = auditor.offset_for_timestamp(queue, began_ms)
        found = auditor.pull(queue, "*", offset, 32)
        print(queue, "from", offset, len(found.messages), "messages, next", found.next_offset)
