"""What the two proofs of order by key share: a message in hand, and a handler that watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cometmq.rules.queues.key_lanes import BARRIER

FOR_EVER = 1_000
"""So many failures of a message mean that it never goes well."""


@dataclass
class Pulled:
    """A message as a member has it; `sent` is the same as its world knows it."""

    queue_offset: int
    sent: Any
    body: bytes = b"x"
    store_ms: int = 1
    reconsume_times: int = 0


def never_overtaken(batch: list[Pulled], log: list[Any]) -> None:
    """Fail where a batch of a queue comes before the end of an earlier message of its keys."""
    for at, one in enumerate(batch):
        sent, own = one.sent, [other.sent for other in batch[:at]]
        for before in log[: sent.queue_offset]:
            if sent.key is BARRIER or before.key in (sent.key, BARRIER):
                assert before.is_finished or before in own, f"{sent} overtook {before}"


def handled(batch: list[Pulled]) -> bool:
    """Handle a batch, of which a message fails as often as it is to; whether all went well."""
    bad = [one.sent for one in batch if one.sent.fails]
    for sent in bad:
        sent.fails -= sent.fails < FOR_EVER
    for one in batch if not bad else ():
        one.sent.is_finished = True
    return not bad
