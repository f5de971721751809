"""Headers of transactions: END (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK (323)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cometmq.wire.headers.base import Header, Long, WireNames


@dataclass(slots=True, kw_only=True)
class EndTransactionRequestHeader(Header):
    """How a half message ends: `commit_or_rollback` 8 commit, 12 rollback, 0 not known yet."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool | None = False
    msg_id: str
    transaction_id: str | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class CheckTransactionStateRequestHeader(Header):
    """Broker to producer: what became of this half message?"""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = None


@dataclass(slots=True, kw_only=True)
class ResumeCheckHalfMessageRequestHeader(Header):
    """Ask about this half message again, as often as about a new one. `msg_id` is the offset id."""

    wire_names: ClassVar[WireNames] = {"broker_name": "bname"}
    topic: str | None = None
    msg_id: str
    broker_name: str | None = None
