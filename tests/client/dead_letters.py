"""The dead letters of a group: how many there are, and what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.short_delay_cluster import until
from cometmq import Admin, PushConsumer

if TYPE_CHECKING:
    from cometmq import MessageExt
    from cometmq.testing.cluster import LocalCluster


def dead_letter_count(cluster: LocalCluster, group: str, count: int) -> int:
    """How many there are, once there are at least so many."""
    topic = f"%DLQ%{group}"
    with Admin(namesrv=cluster.namesrv) as admin:

        def stored() -> int:
            return sum(one.max_offset - one.min_offset for one in admin.topic_stats(topic).values())

        until(lambda: topic in admin.topics())  # it comes with its first letter
        until(lambda: stored() >= count)
        return stored()


def dead_letters(cluster: LocalCluster, group: str, count: int) -> list[MessageExt]:
    """All of them in their order, read by a group of their own, once there are at least so many."""
    letters: list[MessageExt] = []
    topic = f"%DLQ%{group}"
    with Admin(namesrv=cluster.namesrv) as admin:
        until(lambda: topic in admin.topics())
    undertaker = PushConsumer(f"{group}-U", namesrv=cluster.namesrv, consume_from="first")
    undertaker.subscribe(topic, "*", letters.extend)
    with undertaker:
        until(lambda: len(letters) >= count)
    return sorted(letters, key=lambda letter: letter.queue_offset)  # threads read them
