"""A message that is damaged at its broker becomes one dead letter; no copy of it looks whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client.dead_letters import dead_letters
from client.short_delay_cluster import until
from cometmq import Message, Producer, PushConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.testing.cluster import LocalCluster

BODIES = [b"first", b"to-be-damaged", b"third"]


def damage(cluster: LocalCluster, body: bytes) -> None:
    """Change a byte of a record with this body under the broker that runs."""
    path = min((cluster.store / "commitlog").iterdir())
    with path.open("r+b") as log:
        at = log.read(1 << 20).find(body)
        assert at > 0
        log.seek(at)
        log.write(bytes([body[0] ^ 1]))


@pytest.mark.parametrize("order", ["none", "queue", "key"])
def test_it_becomes_one_dead_letter_and_what_is_behind_it_is_handled(
    order: str, own_cluster: LocalCluster, tmp_path: Path
) -> None:
    topic, group = f"Damaged-{order}", f"damaged-{order}"
    with Producer("P", namesrv=own_cluster.namesrv) as producer:
        for body in BODIES:
            producer.send(Message(topic, body, sharding_key="same"))
    damage(own_cluster, BODIES[1])
    seen: list[bytes] = []
    consumer = PushConsumer(
        group,
        namesrv=own_cluster.namesrv,
        order=order,
        consume_from="first",
        state_dir=tmp_path / "state",
    )
    consumer.subscribe(topic, "*", lambda messages: seen.extend(each.body for each in messages))
    with consumer:
        until(lambda: len(seen) == 2)
        (letter,) = dead_letters(own_cluster, group, 1)
    assert sorted(seen) == [b"first", b"third"]
    assert "the checksum of its body is wrong" in letter.properties["DLQ_REASON"]
    assert letter.body[1:] == BODIES[1][1:]
