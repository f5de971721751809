"""Records of the message trace are read as they are written, and as older clients write them."""

from cometmq.model.trace_event import TraceEvent
from cometmq.wire.bodies import trace
from cometmq.wire.bodies.trace import TracedMessage, decode_trace

SUBJECT = TracedMessage("orders", "ID", "T", "k1 k2")


def test_what_was_written_is_read():
    records = [
        trace.sent(
            SUBJECT, at_ms=5, region="R", group="p", store_host="h:1", body_bytes=3, cost_ms=2,
            kind=trace.NORMAL, offset_msg_id="O", is_ok=False,
        ),
        trace.before(SUBJECT, at_ms=6, region="R", group="c", request_id="q", retries=1),
        trace.after(
            SUBJECT, at_ms=9, group="c", request_id="q", cost_ms=3, is_ok=False, code=trace.FAILED
        ),
        trace.ended(
            SUBJECT, at_ms=7, region="R", group="p", store_host="h:1", transaction_id="X",
            state="COMMIT_MESSAGE", from_check=False,
        ),
    ]  # fmt: skip
    keys = "k1 k2"
    known = {"topic": "orders", "tags": "T", "keys": keys, "store_host": "h:1"}
    assert decode_trace("".join(records).encode()) == [
        TraceEvent("sent", 5, "p", "ID", **known, cost_ms=2, is_ok=False),
        TraceEvent("handling", 6, "c", "ID", keys=keys, request_id="q", retries=1),
        TraceEvent(
            "handled", 9, "c", "ID", keys=keys, request_id="q", cost_ms=3, is_ok=False,
            state="FAILED",
        ),
        TraceEvent("ended", 7, "p", "ID", **known, state="COMMIT_MESSAGE"),
    ]  # fmt: skip


def test_shorter_records_of_older_clients_are_read():
    sent = "\x01".join(["Pub", "5", "R", "p", "orders", "ID", "T", "k", "h:1", "3", "2", "0"])
    after = "\x01".join(["SubAfter", "q", "ID", "3", "true", "k"])
    first, second = decode_trace(f"{sent}\x02{after}\x02".encode())
    assert (first.kind, first.msg_id, first.is_ok) == ("sent", "ID", True)
    assert second == TraceEvent("handled", 0, "", "ID", keys="k", request_id="q", cost_ms=3)


def test_what_is_no_record_is_left_out():
    assert decode_trace(b"\xff\x02Pub\x015\x02Other\x01x\x02") == []
    long = "\x01".join(["SubAfter", "q", "ID", "9" * 5_000, "true", "k"])
    assert [one.cost_ms for one in decode_trace(long.encode())] == [0]
