"""Half messages, their ends, and the answers of their producers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.harness import now_ms
from cometmq.model.subscription import HeartbeatData
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from cometmq.wire.records import message_id

if TYPE_CHECKING:
    from broker.commands import Client, Harness
    from cometmq.wire.command import Command

HALF, OP, LOST = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = {"transaction_timeout_ms": 100, "transaction_check_interval_ms": 100}
SELDOM = {"transaction_timeout_ms": 0, "transaction_check_interval_ms": 3_600_000}


async def half(client: Client, key: str = "H1", topic: str = "T", **more: Any) -> Command:
    """Send a half message and give the broker's answer."""
    extra = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key, **more.pop("properties", {})}
    given = {"sys_flag": 4, "born_timestamp": now_ms(), **more}
    answer = await client.send(topic, key.encode(), properties=extra, **given)
    assert answer.code == 0, answer
    return answer


def end_header(answer: Command, how: int, **more: Any) -> EndTransactionRequestHeader:
    """The end of the half message that was answered so."""
    _, phy_offset = message_id.parse_offset_id(answer.ext["msgId"])
    fields: dict[str, Any] = {
        "producer_group": "PG",
        "tran_state_table_offset": int(answer.ext["queueOffset"]),
        "commit_log_offset": phy_offset,
        "commit_or_rollback": how,
        "msg_id": "H1",
    }
    return EndTransactionRequestHeader(**{**fields, **more})


async def produce(client: Client, client_id: str = "p1") -> None:
    """Join the producer group."""
    beat = HeartbeatData(client_id=client_id, producer_groups=("PG",))
    assert (await client.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))).code == 0


async def end(client: Client, answer: Command, how: int, **more: Any) -> Command:
    return await client.call(RequestCode.END_TRANSACTION, end_header(answer, how, **more))


async def answer_question(client: Client, how: int) -> CheckTransactionStateRequestHeader:
    """Wait for the broker's question and end what it is about."""
    asked = await client.asked_next()
    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
    assert asked.is_oneway
    header = CheckTransactionStateRequestHeader.decode(asked.ext)
    reply = EndTransactionRequestHeader(
        producer_group="PG",
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=how,
        from_transaction_check=True,
        msg_id=header.msg_id or "",
    )
    assert (await client.call(RequestCode.END_TRANSACTION, reply)).code == 0
    return header


async def round_of(harness: Harness) -> None:
    """Let the broker look at its half messages now, and wait until it has."""
    await harness.broker.state.check_back.check()
    await asyncio.sleep(0.05)


def offsets_of(harness: Harness) -> tuple[int, int]:
    committed = harness.broker.state.offsets.committed
    return (
        committed("CID_RMQ_SYS_TRANS", HALF, 0),
        committed("CID_RMQ_SYS_TRANS", OP, 0),
    )
