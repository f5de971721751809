"""What a member says of its work, as text and back."""

from __future__ import annotations

import json

import pytest

from cometmq.errors import ProtocolError
from cometmq.model.group_work import MemberWork, QueueWork
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.member_work import decode_work, encode_work

QUEUE, OTHER = MessageQueue("t", "b", 3), MessageQueue("t", "b", 4)
WORK = MemberWork(
    order="key",
    busy=3,
    busy_s=1.5,
    outages=("t",),
    lost=("10.0.0.1:10911",),
    lock_holders={OTHER: "10.0.0.2@x"},
    queues={
        QUEUE: QueueWork(position=7, limited_s={"span": 0.05}, keys={"k": 0.5, "ü": 0.25}, lanes=2)
    },
)


def test_what_was_written_is_read() -> None:
    assert decode_work(encode_work(WORK)) == WORK
    assert decode_work(encode_work(MemberWork())) == MemberWork()


def test_fields_of_later_versions_are_ignored() -> None:
    fields = json.loads(encode_work(WORK))
    fields["mood"] = "good"
    fields["queues"][0][3]["colour"] = 7
    assert decode_work(json.dumps(fields)) == WORK


@pytest.mark.parametrize(
    "change",
    [
        {"threads": "many"},
        {"busy_s": True},
        {"done": float("inf")},
        {"queues": [["t", "b"]]},
        {"queues": [["t", "b", 1, {}]]},
        {"queues": [["t", "b", 1, {"position": 1, "keys": {"k": "half"}}]]},
        {"queues": 5},
        {"lock_holders": [["t"]]},
    ],
)
def test_what_is_of_another_kind_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(encode_work(WORK)) | change
    with pytest.raises(ProtocolError, match="cannot be read"):
        decode_work(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "null", "[" * 9_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_work(text)
