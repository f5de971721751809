"""Commands of a consumer whose handler failed: the message is sent back to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.commands import records
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from broker.commands import Client
    from cometmq.wire.command import Command
    from cometmq.wire.records.log_record import StoredRecord


async def send_and_pull(client: Client, **more: Any) -> StoredRecord:
    """One message of topic T, sent and pulled by the group CG."""
    await client.beat("CG", "T")
    assert (await client.send("T", b"hard", **more)).code == 0
    return records(await client.pull("T"))[-1]


async def send_back(client: Client, record: StoredRecord, **more: Any) -> Command:
    fields = {
        "offset": str(record.phy_offset),
        "group": "CG",
        "delayLevel": "0",
        "originMsgId": "K1",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "3",
    }
    wanted = {**fields, **{name: str(value) for name, value in more.items()}}
    return await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, **wanted)
