"""What a broker adds to a message's properties, takes out of them, and refuses."""

from __future__ import annotations

import pytest

from cometmq.broker.sends.message_preparation import MessagePreparer, check_is_whole
from cometmq.errors import Reject
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.message_draft import MessageDraft
from cometmq.wire.codes import ResponseCode
from cometmq.wire.records import properties, sysflag


def preparer(max_message_bytes: int = 1000) -> MessagePreparer:
    settings = BrokerSettings(region_id="R", broker_cluster_name="C")
    store = StoreSettings(max_message_bytes=max_message_bytes)
    return MessagePreparer(settings, store, lambda: "NEW")


def refusal(raw: bytes, body: bytes = b"b") -> ResponseCode:
    with pytest.raises(Reject) as caught:
        preparer().check_content(MessageDraft("T", 0, body, raw))
    return ResponseCode(caught.value.code)


def test_a_message_gets_a_key_a_region_and_a_cluster() -> None:
    stored = properties.decode(preparer().complete(b""))
    added = {"MSG_REGION": "R", "TRACE_ON": "true", "CLUSTER": "C"}
    assert stored == {"UNIQ_KEY": "NEW", **added}


def test_a_key_of_the_sender_is_kept_with_or_without_the_last_separator() -> None:
    for raw in (b"UNIQ_KEY\x01K\x02", b"UNIQ_KEY\x01K"):
        stored = preparer().complete(raw)
        assert stored == b"UNIQ_KEY\x01K\x02" + preparer().tail


def test_what_only_a_broker_sets_is_taken_out() -> None:
    raw = properties.encode(
        {
            "MSG_REGION": "old",
            "TRACE_ON": "old",
            "CLUSTER": "old",
            "POP_CK": "1",
            "__CRC32#": "1",
            "__RMQ.TRANSIENT.x": "1",
            "a": "CLUSTER",
        }
    )
    assert properties.decode(MessagePreparer.cleaned(raw)) == {"a": "CLUSTER"}


def test_a_body_has_one_byte_at_least_and_not_more_than_the_limit() -> None:
    assert refusal(b"", b"") == ResponseCode.MESSAGE_ILLEGAL
    assert refusal(b"", bytes(1001)) == ResponseCode.MESSAGE_ILLEGAL
    preparer().check_content(MessageDraft("T", 0, bytes(1000)))


def test_a_new_limit_counts_at_once() -> None:
    changed = preparer()
    changed.adjust(StoreSettings(max_message_bytes=10))
    with pytest.raises(Reject):
        changed.check_content(MessageDraft("T", 0, bytes(11)))


def test_a_batch_in_one_record_is_refused() -> None:
    assert refusal(b"INNER_NUM\x012\x02") == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("level", [b"x", b"1.5", b"2147483648", b"-2147483648", b"1" * 12])
def test_a_delay_level_is_a_number_of_32_bits(level: bytes) -> None:
    assert refusal(b"DELAY\x01" + level + b"\x02") == ResponseCode.SYSTEM_ERROR


def test_a_message_that_is_half_by_its_flag_only_is_refused() -> None:
    check_is_whole(MessageDraft("T", 0, b"b"))
    with pytest.raises(Reject):
        check_is_whole(MessageDraft("T", 0, b"b", sys_flag=sysflag.TRANSACTION_PREPARED))
