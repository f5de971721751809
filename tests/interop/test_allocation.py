"""Shares of queues: every strategy gives each member what RocketMQ's own classes give it."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from cometmq.model.queue import MessageQueue
from cometmq.rules import allocate

if TYPE_CHECKING:
    from cometmq.rules.allocate import Allocate
    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
CASES = 600
STRATEGIES: dict[str, Allocate] = {
    **allocate.STRATEGIES,
    "MACHINE_ROOM": allocate.machine_room({"r1", "r2"}),
    "MACHINE_ROOM_NEARBY": allocate.machine_room_nearby(
        allocate.average, lambda broker: broker.split("@")[0], lambda client: client.split("-")[0]
    ),
}


def case(dice: random.Random) -> tuple[str, str, list[str], list[MessageQueue]]:
    """A strategy, a member, the group in Java's order, and the topic's queues in order."""
    rooms = ["r1", "r2", "r3", "r1@x"]
    clients = {f"{dice.choice(rooms[:3])}-10.0.0.{dice.randrange(99)}@{n}" for n in range(9)}
    group = sorted(dice.sample(sorted(clients), dice.randint(1, len(clients))))
    queues = [
        MessageQueue("Topic", broker, n)
        for broker in sorted({f"{dice.choice(rooms)}@b{n}" for n in range(dice.randint(1, 4))})
        for n in range(dice.randint(1, 9))
    ]
    return dice.choice(sorted(STRATEGIES)), dice.choice(group), group, queues


def test_every_strategy_agrees_with_java(java: JavaHost) -> None:
    dice = random.Random(7)
    cases = [case(dice) for _ in range(CASES)]
    lines = [
        "\t".join([name, client, ",".join(group), ",".join("/".join(map(str, q)) for q in queues)])
        for name, client, group, queues in cases
    ]
    done = subprocess.run(
        java.command("Allocate"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    got = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("GOT")]
    assert len(got) == CASES, done.stdout[-2000:] + done.stderr[-2000:]
    for (name, client, group, queues), theirs in zip(cases, got, strict=True):
        ours = allocate.share_of(STRATEGIES[name], client, queues, group)
        assert ["/".join(map(str, queue)) for queue in ours] == theirs, (name, client, group)
