"""All messages of a queue, pulled from a broker that may be slow to answer."""

from __future__ import annotations

from broker.commands import pull_header
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import log_record as stored

ANSWER_WITHIN_S = 120


def pull(broker: str, topic: str, queue_id: int, known: dict[int, bytes]) -> dict[int, bytes]:
    """What is known of a queue, and what comes behind it."""
    found = dict(known)
    with BlockingChannel(broker, ANSWER_WITHIN_S) as channel:
        while True:
            header = pull_header(topic=topic, queue_id=queue_id, queue_offset=len(found))
            answer = channel.call(RequestCode.PULL_MESSAGE, header)
            if answer.code != ResponseCode.SUCCESS:
                return found
            for record in stored.iterate(answer.body):
                found[record.queue_offset] = record.body
