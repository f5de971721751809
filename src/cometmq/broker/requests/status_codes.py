"""The store's put and get statuses as response codes and remarks.

Each table has all statuses.
Java: SendMessageProcessor.handlePutMessageResult, PullMessageProcessor.
"""

from __future__ import annotations

from cometmq.store.get_result import GetStatus
from cometmq.store.put_result import PutStatus
from cometmq.wire.codes import ResponseCode

PUT_STATUS_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}

PUT_STATUS_REMARKS = {
    PutStatus.FLUSH_DISK_TIMEOUT: "the message is stored, but it could not be flushed in time",
    PutStatus.MESSAGE_ILLEGAL: "the message is too large, or its topic's name is too long",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (
        "the properties take more than 32767 bytes with what the broker adds to them"
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: "the store takes no messages now: closed, or the disk is full",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "the message is stored, but its replicas were not in time",
    PutStatus.SLAVE_NOT_AVAILABLE: "the message is stored, but no replica could be reached",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED] the disk does not keep up; try again later",
}

GET_STATUS_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""NO_MESSAGE_IN_QUEUE: at offset 0 only; at others the code is PULL_OFFSET_MOVED."""
