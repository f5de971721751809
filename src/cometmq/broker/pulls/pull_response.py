"""Hot. The response to a pull: the result of a read as a code and a header.

Clients need the header's offsets with the codes 0, 19, 20 and 21 alike.
Java: PullMessageProcessor.composeResponseHeader, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.pulls.pull_check import PullForbidden
from cometmq.broker.requests.status_codes import GET_STATUS_CODES
from cometmq.model.route import MASTER_ID
from cometmq.net.handler import Reply, TwoPartFrame
from cometmq.store.get_result import GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import VERSION
from cometmq.wire.frame import encode_frame, encode_head

if TYPE_CHECKING:
    from cometmq.broker.pulls.pull_check import ReadPlan
    from cometmq.errors import Reject
    from cometmq.store.get_result import GetResult

_HEADER = (
    b'{"code":%%d,"extFields":{"groupSysFlag":"%%d","maxOffset":"%%d","minOffset":"%%d",'
    b'"nextBeginOffset":"%%d","suggestWhichBrokerId":"%%d","topicSysFlag":"%%d"},"flag":1,'
    b'"language":"PYTHON","opaque":%%b,"remark":"%%b","serializeTypeCurrentRPC":"JSON",'
    b'"version":%d}' % VERSION
)
_REMARKS = {status: status.name.encode() for status in GetStatus}
_FOUND_REMARK = _REMARKS[GetStatus.FOUND]
"""Apart, as the hash of an enum's member takes 0.5 us."""


def response_code(got: GetResult, queue_offset: int) -> ResponseCode:
    """The code that answers a read from this offset."""
    # Java: an empty queue read from another offset than 0 has lost its messages.
    if got.status is GetStatus.NO_MESSAGE_IN_QUEUE and queue_offset != 0:
        return ResponseCode.PULL_OFFSET_MOVED
    return GET_STATUS_CODES[got.status]


def encode_read(
    opaque: bytes, code: int, plan: ReadPlan, got: GetResult, suggested_id: int = MASTER_ID
) -> TwoPartFrame:
    """A whole frame with the result of a read; the opaque in digits.

    `suggested_id`: the id of the broker of this name that the reader should ask next.
    """
    topic, group, _ = plan
    status, next_offset, min_offset, max_offset, body, _ = got
    header = _HEADER % (
        code,
        group.group_sys_flag,
        max_offset,
        min_offset,
        next_offset,
        suggested_id,
        topic.topic_sys_flag,
        opaque,
        _FOUND_REMARK if status is GetStatus.FOUND else _REMARKS[status],
    )
    return TwoPartFrame(encode_head(header, len(body)), body)


def encode_reset(opaque: bytes, plan: ReadPlan, got: GetResult, next_offset: int) -> bytes:
    """A whole frame that sends the consumer to the offset that its group was reset to."""
    header = _HEADER % (
        ResponseCode.PULL_OFFSET_MOVED,
        plan.group.group_sys_flag,
        got.max_offset,
        got.min_offset,
        next_offset,
        MASTER_ID,
        plan.topic.topic_sys_flag,
        opaque,
        b"OFFSET_RESET",
    )
    return encode_frame(header, b"")


def refuse(refusal: Reject) -> Reply:
    """The response to a pull that did not pass the check."""
    if isinstance(refusal, PullForbidden):
        ext = {"forbiddenType": str(int(refusal.forbidden_type))}
        return Reply(refusal.code, remark=refusal.remark, ext=ext)
    return Reply(refusal.code, remark=refusal.remark)
