"""Hot. The check of a send: may this topic be written, and to which queue does the message go?

RocketMQ's checks, in its order and with its codes. May create the topic; puts nothing.
Java: AbstractSendMessageProcessor.msgCheck, SendMessageProcessor.preSend.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model import topic as names
from cometmq.rules import permission
from cometmq.rules.name_validation import topic_name_problem
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from cometmq.broker.cluster.topics import Topics
    from cometmq.model.topic import TopicConfig
    from cometmq.settings.broker import BrokerSettings
    from cometmq.wire.headers.send import SendMessageRequestHeader


class SendCheck:
    """Checks the header of a send."""

    def __init__(self, topics: Topics, settings: BrokerSettings) -> None:
        self._topics = topics
        self._settings = settings
        self._round_robin = count()

    def adjust(self, settings: BrokerSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def admit(self, header: SendMessageRequestHeader) -> TopicConfig:
        """The topic to send to, created where that is allowed; raises Reject."""
        name = header.topic
        config = self._topics.get(name)
        # Java: msgCheck asks this of topics of order only.
        if config and config.order and not permission.is_writable(self._settings.broker_permission):
            raise Reject(ResponseCode.NO_PERMISSION, "this broker does not let anyone write")
        if config is None and (problem := topic_name_problem(name)):
            raise Reject(ResponseCode.INVALID_PARAMETER, problem)
        if name in names.SEND_FORBIDDEN_TOPICS:
            raise Reject(ResponseCode.NO_PERMISSION, f"clients may not send to the topic {name}")
        if config is None:
            config = self._topics.create_for_send(
                name,
                header.default_topic,
                header.default_topic_queue_nums,
                unit_mode=bool(header.unit_mode),
            )
        if config is None:
            raise Reject(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic {name} does not exist on this broker and may not be created by a send",
            )
        queues = max(config.write_queue_nums, config.read_queue_nums)
        if header.queue_id >= queues:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"queue {header.queue_id} of {name} does not exist; there are {queues}, from 0",
            )
        return config

    def queue_of(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """The queue asked for; below 0: one queue after the other."""
        if header.queue_id >= 0:
            return header.queue_id
        return next(self._round_robin) % max(1, config.write_queue_nums)

    def sys_flag_of(self, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """The flag a message is stored with; raises Reject for kinds that are not supported."""
        sys_flag = header.sys_flag
        if sys_flag & sysflag.INNER_BATCH:
            raise illegal_message(
                "a batch in one record needs a topic of batches, which is not supported"
            )
        return (
            sys_flag | sysflag.MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else sys_flag
        )


def illegal_message(remark: str) -> Reject:
    """MESSAGE_ILLEGAL."""
    return Reject(ResponseCode.MESSAGE_ILLEGAL, remark)
