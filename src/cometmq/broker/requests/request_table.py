"""Which handler answers which request code. The whole list of what this broker does.

Owns nothing but the list. A code that is missing here is answered 'not supported'.
Java: BrokerController.registerProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.handler import Reply
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.broker.delivery.reply import ReplyHandler
    from cometmq.broker.delivery.send_back import SendBackHandler
    from cometmq.broker.delivery.transactions import Transactions
    from cometmq.broker.groups.heartbeat import HeartbeatHandler
    from cometmq.broker.groups.lock_requests import QueueLockHandler
    from cometmq.broker.groups.offset_requests import OffsetRequestHandler
    from cometmq.broker.messages.message_lookup import MessageLookupHandler
    from cometmq.broker.messages.pull import PullHandler
    from cometmq.broker.messages.send import SendHandler
    from cometmq.net.connection import Connection
    from cometmq.net.handler import Handler
    from cometmq.wire.command import Command

MAKERS = (
    Code.SEND_MESSAGE,
    Code.SEND_MESSAGE_V2,
    Code.SEND_BATCH_MESSAGE,
    Code.HEART_BEAT,
    Code.CONSUMER_SEND_MSG_BACK,
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
)
"""Requests that may make or change a topic or a group."""


READERS = (
    Code.QUERY_CONSUMER_OFFSET,
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    Code.GET_MIN_OFFSET,
    Code.GET_EARLIEST_MSG_STORETIME,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.QUERY_CORRECTION_OFFSET,
    Code.END_TRANSACTION,
    Code.RESUME_CHECK_HALF_MESSAGE,
)
"""Requests that look at messages and change nothing, or nothing before they have looked."""

ALWAYS = (
    Code.HEART_BEAT,
    Code.UNREGISTER_CLIENT,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.UPDATE_CONSUMER_OFFSET,
    Code.GET_MAX_OFFSET,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
)
"""Requests by which a client stays what it is; answered even when it has too much unanswered."""


def table(
    *,
    send: SendHandler,
    pull: PullHandler,
    positions: OffsetRequestHandler,
    heartbeat: HeartbeatHandler,
    order: QueueLockHandler,
    send_back: SendBackHandler,
    reply: ReplyHandler,
    transactions: Transactions,
    view: MessageLookupHandler,
    admin: Mapping[int, Handler],
) -> dict[int, Handler]:
    """The table the dispatcher works with."""
    return {
        Code.SEND_MESSAGE: send,
        Code.SEND_MESSAGE_V2: send,
        Code.SEND_BATCH_MESSAGE: send,
        Code.PULL_MESSAGE: pull,
        Code.LITE_PULL_MESSAGE: pull,
        Code.QUERY_CONSUMER_OFFSET: positions.query,
        Code.UPDATE_CONSUMER_OFFSET: positions.update,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: positions.search,
        Code.GET_MAX_OFFSET: positions.max_offset,
        Code.GET_MIN_OFFSET: positions.min_offset,
        Code.GET_EARLIEST_MSG_STORETIME: positions.earliest_time,
        Code.VIEW_MESSAGE_BY_ID: view.by_offset,
        Code.QUERY_MESSAGE: view.by_key,
        Code.HEART_BEAT: heartbeat.heartbeat,
        Code.UNREGISTER_CLIENT: heartbeat.unregister,
        Code.GET_CONSUMER_LIST_BY_GROUP: heartbeat.consumer_list,
        Code.CHECK_CLIENT_CONFIG: heartbeat.check_client,
        Code.CONSUMER_SEND_MSG_BACK: send_back,
        Code.LOCK_BATCH_MQ: order.lock,
        Code.UNLOCK_BATCH_MQ: order.unlock,
        Code.SEND_REPLY_MESSAGE: reply,
        Code.SEND_REPLY_MESSAGE_V2: reply,
        Code.END_TRANSACTION: transactions.end,
        Code.RESUME_CHECK_HALF_MESSAGE: transactions.resume,
        **admin,
    }


def unsupported(request: Command, _connection: Connection) -> Reply:
    """Answer a code that is not in the table."""
    known = request.code in Code._value2member_map_
    name = f"{Code(request.code).name} ({request.code})" if known else str(request.code)
    return Reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {name} not supported"
    )
