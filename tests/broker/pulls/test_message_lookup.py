"""Messages found by place, key, id and tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.commands import records
from broker.harness import run, running
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import pytest


def test_a_message_is_found_by_its_place_its_key_its_id_and_its_tag() -> None:
    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            pairs = {"KEYS": "a k", "UNIQ_KEY": "id-1", "TAGS": "t"}
            sent = await client.send("T", b"found", properties=pairs)
            offset = str(int(sent.ext["msgId"][16:], 16))
            answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
            assert records(answer)[0].body == b"found"
            for wrong in ("7", "-1", str(10**15)):
                answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=wrong)
                assert answer.code == ResponseCode.SYSTEM_ERROR
            fields = {
                "topic": "T",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": str((1 << 63) - 1),
            }
            unique = {"_UNIQUE_KEY_QUERY": "true", "maxNum": "0"}
            asked = ({"key": "k"}, {"key": "id-1"} | unique, {"key": "t", "indexType": "T"})
            for more in asked:
                answer = await client.call(RequestCode.QUERY_MESSAGE, **(fields | more))
                assert answer.code == ResponseCode.SUCCESS
                assert [record.body for record in records(answer)] == [b"found"]
                assert answer.ext["indexLastUpdatePhyoffset"] == offset
                assert int(answer.ext["indexLastUpdateTimestamp"]) == records(answer)[0].store_ms
            for nothing in ({"key": "t"}, {"key": "k", "maxNum": "0"}, {"key": "a k"}):
                answer = await client.call(RequestCode.QUERY_MESSAGE, **(fields | nothing))
                assert answer.code == ResponseCode.QUERY_NOT_FOUND
                assert answer.ext["indexLastUpdatePhyoffset"] == "0"

    run(scenario())


def test_an_answer_says_where_a_lookup_has_passed_over_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cometmq.store.index.key_index.STEPS_MAX", 2)
    fields = {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0"}

    async def scenario() -> None:
        async with running() as harness:
            client = await harness.client()
            for number in range(4):
                await client.send("T", b"%d" % number, properties={"KEYS": "k"}, queue_id=0)
            end = {"endTimestamp": str((1 << 63) - 1)}
            answer = await client.call(RequestCode.QUERY_MESSAGE, **fields, **end)
            assert answer.code == ResponseCode.SUCCESS
            assert [record.body for record in records(answer)] == [b"2", b"3"]
            assert (answer.remark or "").startswith("too many messages have this key")
            answer = await client.call(RequestCode.QUERY_MESSAGE, **fields, endTimestamp="1")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND

    run(scenario())
