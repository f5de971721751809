"""The response to a pull: its code, its header and its body, as a decoder reads them."""

from __future__ import annotations

from struct import unpack

import pytest

from cometmq.broker.pulls.pull_check import ForbiddenType, MessageFilter, PullForbidden, ReadPlan
from cometmq.broker.pulls.pull_response import encode_read, encode_reset, refuse, response_code
from cometmq.errors import Reject
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import TopicConfig
from cometmq.store.get_result import GetResult, GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.frame import Frame

PLAN = ReadPlan(
    TopicConfig(topic_name="T", topic_sys_flag=5),
    SubscriptionGroupConfig(group_name="G", group_sys_flag=6),
    MessageFilter(),
)


def read(body: bytes = b"records", status: GetStatus = GetStatus.FOUND) -> GetResult:
    return GetResult(status, 12, 3, 40, body, 1)


def decoded(frame: bytes) -> Command:
    size, mark = unpack(">ii", frame[:8])
    kind, header_end = mark >> 24, 8 + (mark & 0xFFFFFF)
    assert size == len(frame) - 4
    return Command.decode(Frame(kind, frame[8:header_end], frame[header_end:]))


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.FOUND, 7, ResponseCode.SUCCESS),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 7, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_OVERFLOW_ONE, 7, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_TOO_SMALL, 7, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
def test_the_code_follows_the_result_of_the_read(
    status: GetStatus, offset: int, code: ResponseCode
) -> None:
    assert response_code(read(status=status), offset) == code


def test_a_read_is_answered_with_its_offsets_flags_and_records() -> None:
    answer = decoded(b"".join(encode_read(b"77", 0, PLAN, read())))
    assert (answer.code, answer.opaque, answer.remark) == (0, 77, "FOUND")
    assert answer.body == b"records"
    assert answer.ext == {
        "groupSysFlag": "6",
        "maxOffset": "40",
        "minOffset": "3",
        "nextBeginOffset": "12",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "5",
    }


def test_the_body_is_not_copied_into_the_frame() -> None:
    body = bytes(1 << 20)
    frame = encode_read(b"77", 0, PLAN, read(body))
    assert frame.body is body
    assert decoded(frame.head + frame.body).body == body


def test_a_reset_sends_the_consumer_to_the_new_offset() -> None:
    answer = decoded(encode_reset(b"77", PLAN, read(), 25))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert answer.ext is not None
    assert answer.ext["nextBeginOffset"] == "25"
    assert answer.body == b""


def test_a_refusal_says_what_forbids_the_read() -> None:
    reply = refuse(PullForbidden(ForbiddenType.TOPIC_FORBIDDEN, "no"))
    assert (reply.code, reply.remark) == (ResponseCode.NO_PERMISSION, "no")
    assert reply.ext == {"forbiddenType": "3"}


def test_any_other_refusal_is_its_code_and_its_remark() -> None:
    reply = refuse(Reject(ResponseCode.TOPIC_NOT_EXIST, "none"))
    assert (reply.code, reply.remark) == (ResponseCode.TOPIC_NOT_EXIST, "none")
    assert not reply.ext
