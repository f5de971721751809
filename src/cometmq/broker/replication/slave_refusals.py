"""What a slave refuses, because only its master may do it. Data, and how it is answered.

Codes as Apache's slaves answer, but for changes of topics and groups: Apache's take these and lose
them with the next copy of their master's tables.
Java: rejectRequest of SendMessageProcessor, EndTransactionProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.endpoint import RequestEffect
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.net.endpoint import Endpoint
    from cometmq.net.handler import Reply
    from cometmq.wire.command import Command

_SENDS = (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] this broker is a slave: send to its master")
_ENDS = (ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: its master ends transactions")
_CHANGES = (
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker.",
)
_RESETS = (ResponseCode.SYSTEM_ERROR, "this broker is a slave: reset offsets at its master")

SLAVE_REFUSALS: dict[Code, tuple[ResponseCode, str]] = {
    Code.SEND_MESSAGE: _SENDS,
    Code.SEND_MESSAGE_V2: _SENDS,
    Code.SEND_BATCH_MESSAGE: _SENDS,
    Code.CONSUMER_SEND_MSG_BACK: _SENDS,
    Code.SEND_REPLY_MESSAGE: _SENDS,
    Code.SEND_REPLY_MESSAGE_V2: _SENDS,
    Code.END_TRANSACTION: _ENDS,
    Code.UPDATE_AND_CREATE_TOPIC: _CHANGES,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _CHANGES,
    Code.DELETE_TOPIC_IN_BROKER: _CHANGES,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _CHANGES,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _CHANGES,
    Code.DELETE_SUBSCRIPTIONGROUP: _CHANGES,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _CHANGES,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _RESETS,
}
"""Request code to the code and remark of the answer."""


def refused_on_slave(endpoint: Endpoint) -> Endpoint:
    """The endpoint as a slave has it."""
    refusal = SLAVE_REFUSALS.get(Code(endpoint.code))
    if refusal is None:
        return endpoint

    def refuse(_request: Command, _connection: Connection) -> Reply:
        raise Reject(*refusal)

    return replace(endpoint, handler=refuse, effects=RequestEffect.NONE)
