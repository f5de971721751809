"""Sends of messages at a time of their own, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.harness import SMALL_STORE

if TYPE_CHECKING:
    from broker.commands import Client

TIMERS = replace(SMALL_STORE, timer_log_file_bytes=4096)


async def timed(client: Client, body: bytes = b"later", *, ok: bool = True, **more: Any) -> Any:
    """Send with properties TIMER_..., such as DELAY_SEC=3."""
    asked = {f"TIMER_{key}": str(more.pop(key)) for key in list(more) if key.isupper()}
    extra = {"UNIQ_KEY": body.decode(), **asked, **more.pop("properties", {})}
    answer = await client.send("T", body, properties=extra, **more)
    assert (answer.code == 0) is ok, answer
    return answer


def bodies(found: list[Any]) -> list[bytes]:
    return [record.body for record in found]
