"""Taking back a message at a time of its own before it is due.

Java: DefaultMQProducerImpl.recallMessage, MQClientAPIImpl.recallMessage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import InvalidMessage, ProtocolError
from cometmq.rules.namespace import with_namespace
from cometmq.wire import recall_handle
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

if TYPE_CHECKING:
    from cometmq.client.producer.producer_options import ProducerOptions
    from cometmq.client.session.client_session import ClientSession


async def recall(
    session: ClientSession, options: ProducerOptions, topic: str, handle: str, timeout_s: float
) -> str:
    """Ask the broker that has the message; returns its UNIQ_KEY."""
    try:
        broker_name = recall_handle.decode(handle).broker_name
    except ProtocolError as problem:
        raise InvalidMessage(f"{problem}; take SendResult.recall_handle") from None
    await session.routes.publish_queues(topic, options.default_topic_queues)
    header = RecallMessageRequestHeader(
        producer_group=options.group,
        topic=with_namespace(options.instance_id, topic),
        recall_handle=handle,
        broker_name=broker_name,
    )
    addr = session.routes.master_addr(broker_name)
    answer = await session.call_checked(
        addr, request(RequestCode.RECALL_MESSAGE, 0, header), timeout_s
    )
    return RecallMessageResponseHeader.decode(answer.ext).msg_id
