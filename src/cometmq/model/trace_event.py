"""What a message trace says became of a message. Java: TraceView, TraceContext."""

from __future__ import annotations

from typing import NamedTuple


class TraceEvent(NamedTuple):
    """One record of a trace. Times are ms since 1970, costs ms; "" and 0 where it does not say.

    `kind`: "sent", "ended" (a transaction, `state` says how), "handling" (a handler is about to be
    called) or "handled" (it returned; `is_ok` says how). Records of one call of a handler have one
    `request_id`, and only the first of them has a topic's time.
    """

    kind: str
    at_ms: int
    group: str
    msg_id: str
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    request_id: str = ""
    cost_ms: int = 0
    retries: int = 0
    is_ok: bool = True
    state: str = ""
