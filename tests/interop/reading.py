"""Reading messages by a push consumer of ours, whatever broker has them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cometmq import ConsumeFrom, MessageExt, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def read(
    namesrv: str,
    topic: str,
    group: str,
    count: int,
    handle: Callable[[Sequence[MessageExt]], None] = lambda _: None,
    **options: object,
) -> list[MessageExt]:
    """The first `count` messages that `handle` accepts."""
    got: list[MessageExt] = []
    complete = threading.Event()

    def handler(messages: Sequence[MessageExt]) -> None:
        handle(messages)
        got.extend(messages)
        if len(got) >= count:
            complete.set()

    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST, **options)
    consumer.subscribe(topic, "*", handler)
    with consumer:
        assert complete.wait(90), f"only {len(got)} of {count} messages came"
    return got
