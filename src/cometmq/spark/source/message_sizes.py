"""How large the next messages of queues are, for the option `maxBytesPerTrigger`.

No request tells sizes without messages, so the first messages to be read are pulled, one pull a
queue, and stand for those behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.spark.source.record_positions import record_starts
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import SUBSCRIPTION, PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Collection

    from cometmq.model.queue import MessageQueue
    from cometmq.spark.source.cluster_client import ClusterClient
    from cometmq.spark.source.planned_offsets import QueueOffsets

_SAMPLE = 8
_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def message_bytes(
    cluster: ClusterClient, start: QueueOffsets, queues: Collection[MessageQueue]
) -> dict[MessageQueue, int]:
    """The mean stored size of the first messages from `start` on; none for a queue without any."""

    def header(queue: MessageQueue) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=cluster.options.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=start[queue],
            max_msg_nums=_SAMPLE,
            sys_flag=SUBSCRIPTION,
            subscription="*",
            expression_type="TAG",
        )

    answers = cluster.ask_each(queues, RequestCode.PULL_MESSAGE, header, _CODES)
    return {
        queue: -(-len(answer.body) // len(record_starts(answer.body)))
        for queue, answer in answers.items()
        if answer.code == ResponseCode.SUCCESS and answer.body
    }
