"""The comparison itself: planted differences are seen, and what must differ is not."""

from __future__ import annotations

import pytest

from cometmq.wire.command import Command
from cometmq.wire.records import log_record as stored
from interop.side_by_side import answer_differences, side_by_side_page
from interop.side_by_side.reasons import Difference, Reasons


def answer(code: int = 0, body: bytes = b"", remark: str | None = None, **ext: str) -> Command:
    return Command(code, 1, flag=1, ext=ext, body=body, remark=remark)


def seen(request_code: int, theirs: Command, ours: Command) -> list[str]:
    facts = [answer_differences.facts(request_code, each) for each in (theirs, ours)]
    return [path for path, _, _ in answer_differences.differences(*facts)]


@pytest.mark.parametrize(
    ("theirs", "ours", "paths"),
    [
        (answer(0), answer(1), ["code"]),
        (answer(offset="5"), answer(offset="6"), ["ext.offset"]),
        (answer(offset="5"), answer(), ["ext.offset"]),
        (answer(body=b'{"a":1}'), answer(body=b'{"a":"1"}'), ["body.a"]),
        (answer(body=b'{"a":{0:1}}'), answer(body=b'{"a":{1:1}}'), ["body.a.0", "body.a.1"]),
        (answer(body=b'{"t":["x","y"]}'), answer(body=b'{"t":["x"]}'), ["body.t[y]"]),
        (answer(remark="FOUND"), answer(remark="found it"), ["remark"]),
        (answer(), answer(remark="why"), ["remark"]),
    ],
)
def test_planted_differences_are_seen(theirs: Command, ours: Command, paths: list[str]) -> None:
    assert seen(208, theirs, ours) == paths


def test_times_ports_ids_and_the_order_of_lists_do_not_count() -> None:
    theirs = answer(body=b'{"at":1795237145786,"on":"127.0.0.1:10911","l":["a","b"]}', id="7F" * 16)
    ours = answer(body=b'{"at":1795240000001,"on":"127.0.0.1:40001","l":["b","a"]}', id="7E" * 16)
    assert seen(208, theirs, ours) == []
    assert seen(208, answer(remark="what Apache says"), answer(remark="what we say")) == []


def test_records_are_compared_field_by_field() -> None:
    def record(tag: bytes, flag: int) -> bytes:
        host, properties = bytes((127, 0, 0, 1, 0, 0, 0, 9)), b"TAGS\x01" + tag + b"\x02"
        return stored.encode("T", 0, flag, 0, 0, 0, 1, host, 2, host, 0, 0, b"x", properties)

    same, other = answer(body=record(b"A", 0)), answer(body=record(b"B", 1))
    assert seen(11, same, same) == []
    assert seen(11, same, other) == ["body.0.flag", "body.0.properties.TAGS"]


def test_a_reason_holds_for_its_own_difference_alone() -> None:
    reasons = Reasons("raw.txt")
    assert reasons.of(Difference("send/empty body", "code", "1", "13"))
    assert reasons.of(Difference("send/empty body", "code", "1", "0")) is None
    assert reasons.of(Difference("send/v2", "code", "0", "1")) is None
    assert len(reasons.unused) > 10


def test_the_page_names_no_place_of_the_machine() -> None:
    text = "at /home/me/x.log of 192.168.3.4, not 127.0.0.1, see docs/operate/a.md, topic/-1 queues"
    assert side_by_side_page.scrubbed(text) == (
        "at <path> of <addr>, not 127.0.0.1, see docs/operate/a.md, topic/-1 queues"
    )
