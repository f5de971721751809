"""Leaving a store to the other broker, by a stop or by a kill, and reading what is in it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cometmq import ConsumeFrom, MessageExt, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.testing.cluster import LocalCluster
    from interop.apache import ApacheCluster


def leave_apache(cluster: ApacheCluster, how: str) -> None:
    if how == "kill":
        cluster._roles[-1]._child.kill()
    cluster.stop()


def leave_ours(cluster: LocalCluster, how: str) -> None:
    if how == "kill":
        cluster.kill()
    cluster.stop()


def wait_for(namesrv: str, topic: str, group: str, wanted: list[bytes]) -> list[bytes]:
    """Read until all of them have come; gives what came, repeats included."""
    left, came, complete = set(wanted), list[bytes](), threading.Event()

    def handler(messages: Sequence[MessageExt]) -> None:
        came.extend(message.body for message in messages)
        left.difference_update(came)
        if not left:
            complete.set()

    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", handler)
    with consumer:
        assert complete.wait(90), f"{len(left)} of {len(wanted)} messages did not come"
    return came
