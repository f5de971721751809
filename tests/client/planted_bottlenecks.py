"""What makes a group slow, one cause at a time or two together: each changes a group's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client import slow_groups as slow
from cometmq import BreakerLimits, FlowLimits
from cometmq.client.handling.handler_call import RetryLater

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.slow_groups import Shape
    from cometmq import MessageExt

    Plant = Callable[[Shape], Shape]


def _poison(message: MessageExt) -> Exception | None:
    return ValueError("bad") if message.properties.get("UNIQ_KEY") == "8" else None


def _half(message: MessageExt) -> Exception | None:
    return RetryLater(delay_level=16) if message.queue_offset % 2 else None


def _all(_message: MessageExt) -> Exception | None:
    return ConnectionError("the database is away")


def _some(message: MessageExt) -> Exception | None:
    return ValueError("bad") if message.queue_offset % 5 == 0 else None


def _flow(shape: Shape, threads: int = 20, **limits: int) -> Shape:
    options = {**shape.options, "flow": FlowLimits(**limits), "pull_batch_size": 1}
    return shape.also(queues=1, members=1, threads=threads, options=options)


PLANTS: dict[str, Plant] = {
    "few queues": lambda s: s.also(order="queue", queues=2, members=1, handler_s=0.05),
    "few threads": lambda s: s.also(threads=2),
    "few members": lambda s: s.also(members=1, handler_s=0.4),
    "idle member": lambda s: s.also(queues=2, members=3, threads=4),
    "slow handler": lambda s: s.also(handler_s=3.0),
    "failing message": lambda s: s.also(order="key", failing=_poison),
    "skewed keys": lambda s: s.also(order="key", hot_key=0.8, threads=10, handler_s=0.05),
    "skewed queues": lambda s: s.also(hot_queue=1.0, threads=4),
    "held lock": lambda s: s.also(
        order="queue", before=(*s.before, slow.take_lock("127.0.0.1@m1"))
    ),
    "lock of a dead member": lambda s: s.also(
        order="queue", before=(*s.before, slow.take_lock("10.0.0.9@gone"))
    ),
    "flow control by count": lambda s: _flow(s, count=2),
    "flow control by size": lambda s: _flow(
        s.also(body=bytes(300_000), messages=160, handler_s=0.9), size_mib=1
    ),
    "flow control by span": lambda s: _flow(s.also(slow_s={b"stuck": 10_000.0}), span=50),
    "long retries": lambda s: s.also(messages=400, failing=_half),
    "dead broker": lambda s: s.also(brokers=2, after=(*s.after, slow.kill_a_broker)),
    "read permission": lambda s: s.also(after=(*s.after, slow.forbid_reads)),
    "unequal subscriptions": lambda s: s.also(tags=("A", "B"), filters=("A", "B")),
    "paused consumer": lambda s: s.also(after=(*s.after, slow.pause_one)),
    "filter": lambda s: s.also(each_s=1_000, tags=("B",) * 99 + ("A",), filters=("A",)),
    "failing send-backs": lambda s: s.also(failing=_some, after=(*s.after, slow.refuse_writes)),
    "disk reads": lambda s: s.also(messages=20_000, handler_s=0.01, disk_s=0.2),
    "open breaker": lambda s: s.also(
        failing=_all, options={**s.options, "breaker": BreakerLimits()}
    ),
}
"""By the name of the cause that is to be named first."""

PAIRS = [
    ("few threads", "paused consumer"),
    ("few threads", "dead broker"),
    ("few threads", "read permission"),
    ("few threads", "unequal subscriptions"),
    ("few threads", "failing send-backs"),
    ("few threads", "open breaker"),
    ("slow handler", "few threads"),
    ("slow handler", "paused consumer"),
    ("slow handler", "dead broker"),
    ("slow handler", "read permission"),
    ("slow handler", "unequal subscriptions"),
    ("slow handler", "failing send-backs"),
    ("few members", "read permission"),
    ("few members", "dead broker"),
    ("few members", "failing send-backs"),
    ("held lock", "slow handler"),
    ("few queues", "lock of a dead member"),
    ("few queues", "read permission"),
    ("idle member", "slow handler"),
    ("idle member", "few threads"),
    ("idle member", "paused consumer"),
    ("failing message", "few threads"),
    ("failing message", "paused consumer"),
    ("failing message", "slow handler"),
    ("skewed queues", "paused consumer"),
    ("skewed queues", "slow handler"),
    ("skewed keys", "few threads"),
    ("held lock", "paused consumer"),
    ("flow control by count", "slow handler"),
    ("unequal subscriptions", "read permission"),
    ("filter", "paused consumer"),
    ("disk reads", "paused consumer"),
    ("disk reads", "dead broker"),
    ("disk reads", "read permission"),
    ("disk reads", "unequal subscriptions"),
    ("disk reads", "failing send-backs"),
]
"""Causes planted together; either may be named first."""

GAINS: list[tuple[str, str, Plant]] = [
    ("few threads", "threads", lambda s: s.also(threads=4)),
    ("few threads", "members", lambda s: s.also(members=4)),
    ("few threads", "queues", lambda s: s.also(queues=16)),
    ("few queues", "queues", lambda s: s.also(queues=4)),
    ("few queues", "key lanes", lambda s: s.also(order="key")),
    ("few queues", "threads", lambda s: s.also(threads=40)),
    ("few queues", "members", lambda s: s.also(members=2)),
    ("few members", "members", lambda s: s.also(members=2)),
    ("few members", "threads", lambda s: s.also(threads=40)),
    ("idle member", "queues", lambda s: s.also(queues=4)),
    ("idle member", "threads", lambda s: s.also(threads=8)),
    ("idle member", "members", lambda s: s.also(members=6)),
    ("slow handler", "threads", lambda s: s.also(threads=40)),
    ("slow handler", "members", lambda s: s.also(members=4)),
    ("skewed queues", "threads", lambda s: s.also(threads=8)),
    ("skewed queues", "members", lambda s: s.also(members=4)),
    ("skewed keys", "threads", lambda s: s.also(threads=20)),
    ("skewed keys", "members", lambda s: s.also(members=4)),
    ("skewed keys", "queues", lambda s: s.also(queues=16)),
    ("flow control by count", "threads", lambda s: s.also(threads=40)),
    ("paused consumer", "threads", lambda s: s.also(threads=40)),
]
"""A planted cause, a change that is predicted, and the same change really made."""
