"""What benches put into a broker and read from it: a backlog, and plain requests."""

import time

from cometmq import Admin, Message, Producer
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.records import properties


def fill(namesrv: str, topic: str, queues: int, count: int, body: bytes) -> None:
    """Make a topic and put a backlog into it."""
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=queues)
    with Producer("filler", namesrv=namesrv) as producer:
        for at in range(0, count, 20_000):
            part = min(20_000, count - at)
            producer.send_many([Message(topic, body, tags="TagA") for _ in range(part)])


def send_header(
    topic: str, queue_id: int, queues: int, *, is_batch: bool = False, **pairs: str
) -> SendMessageRequestHeaderV2:
    """A message, or a batch, that is made now; `pairs` are its properties."""
    return SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties.encode(pairs).decode(),
        batch=is_batch,
    )


def pull_header(topic: str, queue_id: int, offset: int) -> PullMessageRequestHeader:
    """At most 32 messages of any tag, at once."""
    return PullMessageRequestHeader(
        consumer_group="bench",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        subscription="*",
        expression_type="TAG",
    )
