"""The results of a client's calls: send results, pull results, the result of a handler.

Java: org.apache.rocketmq.client.producer.{SendResult, SendStatus, LocalTransactionState},
org.apache.rocketmq.client.consumer.{PullResult, PullStatus},
org.apache.rocketmq.client.consumer.listener.{ConsumeConcurrentlyStatus, ConsumeOrderlyStatus}
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cometmq.model.message import MessageExt
    from cometmq.model.queue import MessageQueue


class SendStatus(Enum):
    """How durable a stored message is. All four mean that the broker has it."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """The broker's answer to one message sent.

    `msg_id` is the id made by the producer (it survives retries), `offset_msg_id` the broker's.
    `region_id` and `trace_on` are the broker's settings for the message trace. `recall_handle` is
    what a producer's `recall` takes: of messages at a time of their own, else None.
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str | None = None


class TransactionState(Enum):
    """How a transaction ends; after UNKNOWN the broker checks back later."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class TransactionResult(NamedTuple):
    """A message sent in a transaction, and how that ended."""

    sent: SendResult
    state: TransactionState


class PullStatus(Enum):
    """What a pull found."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


class PullResult(NamedTuple):
    """One answer to a pull: messages, oldest first, and the next offset to pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]
    suggested_broker_id: int = 0
    has_unreadable: bool = False
    """Whether a body among them is not what was sent: `MessageExt.unreadable` says why."""


class BlockedQueue(NamedTuple):
    """An orderly queue that is blocked because its first message keeps failing.

    `attempts` counts the failures so far, `since_ms` is the time of the first failure seen by this
    consumer (ms since 1970), `reason` the last error.
    """

    queue: MessageQueue
    queue_offset: int
    msg_id: str
    attempts: int
    since_ms: int
    reason: str


class ConsumeStatus(Enum):
    """RocketMQ's results of a handler; returning nothing means CONSUME_SUCCESS.

    COMMIT and ROLLBACK are for orderly consumers without auto_commit.
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"

    @property
    def is_done(self) -> bool:
        """Whether the messages are done and are not delivered again."""
        return self in (
            ConsumeStatus.CONSUME_SUCCESS,
            ConsumeStatus.SUCCESS,
            ConsumeStatus.COMMIT,
        )


class ConsumeFrom(Enum):
    """Where a group starts in a queue without a committed offset."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
