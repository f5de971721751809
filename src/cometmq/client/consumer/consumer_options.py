"""The options of consumers, of push and of polling ones, with RocketMQ's defaults and ranges.

Owns the options and their checks; knows nothing of what uses them. Invariant: an object of this
file is valid, or was never made. A new setting of push consumers is a field of `ConsumerOptions`
and of `PushSettings` (`push_options`), nothing else.
Java: DefaultMQPushConsumer (its fields)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cometmq.client.session.client_options import (
    check_group,
    check_range,
    check_seconds,
    check_type,
)
from cometmq.errors import SettingsError
from cometmq.model.results import ConsumeFrom
from cometmq.rules.allocate import STRATEGIES
from cometmq.rules.failures.circuit_breaker import BreakerLimits
from cometmq.rules.failures.retry_policy import SUSPEND_MS_MAX, SUSPEND_MS_MIN
from cometmq.rules.queues.flow_control import FlowLimits
from cometmq.wire.compression import BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cometmq.model.message import MessageExt
    from cometmq.rules.allocate import Allocate
    from cometmq.rules.failures.failure_policy import Policies

STATE_DIR = Path("~/.cometmq")
"""Where a consumer keeps what it must remember on its machine."""
ORDERS = ("none", "queue", "key")
WithoutKey = Literal["barrier", "lane", "free"]
WITHOUT_KEY: tuple[str, ...] = get_args(WithoutKey)
WORKERS = ("thread", "process")
SPAN_BY_KEY = 10_000
"""How far a queue may run ahead of a key that is stuck, unless `flow` says it."""

PULL_COUNT, LARGE_PULL_COUNT = 32, 256
"""Messages of a pull at most, and of a large one, unless `pull_batch_size` says it."""
OFFSETS_DIR = "~/.rocketmq_offsets"
"""Where the offsets of groups that are broadcast to are kept, as by RocketMQ's clients."""
BROADCAST_INSTANCE = "DEFAULT"
"""The instance name of members that are broadcast to: the same after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a push consumer pulls, runs its handlers and commits."""

    group: str
    orderly: bool = False
    broadcasting: bool = False
    offsets_dir: str | PathLike[str] = OFFSETS_DIR
    consume_threads: int = 20
    batch_size: int = 1
    pull_batch_size: int | None = None
    pull_batch_bytes: int = 262_144
    inflated_bytes_max: int = BYTES_MAX
    pull_interval_ms: int = 0
    max_attempts: int | None = None
    suspend_ms: int = 1000
    auto_commit: bool = True
    retry_in_place_s: float = 5.0
    consume_timeout_s: float = 900.0
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_timestamp_ms: int | None = None
    allocate: Allocate = field(default=STRATEGIES["AVG"])
    flow: FlowLimits = field(default_factory=FlowLimits)
    persist_s: float = 5.0
    rebalance_s: float = 20.0
    lock_renew_s: float = 20.0
    lock_valid_s: float = 30.0
    rejoin_grace_s: float = 2.0
    stop_timeout_s: float = 30.0
    poll_suspend_s: float = 15.0
    order: str = "none"
    key: str | Callable[[MessageExt], Hashable] | None = None
    without_key: str = "barrier"
    state_dir: Path = field(default=STATE_DIR)
    on_failure: Policies | None = None
    breaker: BreakerLimits | None = None
    workers: str = "thread"

    @property
    def is_by_key(self) -> bool:
        """Whether each key of a queue is a lane of its own."""
        return self.order == "key"

    def large_pull_count(self, flow_count: int) -> int:
        """Messages of a large pull where a queue's window holds `flow_count`; 0: none is asked for.

        Who says how many a pull brings, or how often one is sent, gets no more than that.
        """
        count = min(LARGE_PULL_COUNT, flow_count // 4)
        is_free = self.pull_batch_size is None and not self.pull_interval_ms
        return count if is_free and count > PULL_COUNT else 0

    @property
    def is_locking(self) -> bool:
        """Whether queues are worked on under their locks at the broker."""
        return self.orderly or self.is_by_key

    def __post_init__(self) -> None:
        """Refuse what RocketMQ's consumers refuse."""
        check_group(self.group)
        check_range("consume_threads", self.consume_threads, 1, 1000)
        check_range("batch_size", self.batch_size, 1, 1024)
        if self.pull_batch_size is not None:
            check_range("pull_batch_size", self.pull_batch_size, 1, 1024)
        check_range("pull_batch_bytes", self.pull_batch_bytes, 1, 2_147_483_647)
        check_range("inflated_bytes_max", self.inflated_bytes_max, 1, 1_073_741_824)
        check_range("pull_interval_ms", self.pull_interval_ms, 0, 65_535)
        check_range("suspend_ms", self.suspend_ms, SUSPEND_MS_MIN, SUSPEND_MS_MAX)
        check_type("flow", self.flow, FlowLimits, "FlowLimits")
        check_range("flow.count", self.flow.count, 1, 65_535)
        check_range("flow.span", self.flow.span, 1, 65_535)
        check_range("flow.size_mib", self.flow.size_mib, 1, 1024)
        if self.flow.topic_count is not None:
            check_range("flow.topic_count", self.flow.topic_count, 1, 6_553_500)
        if self.flow.topic_size_mib is not None:
            check_range("flow.topic_size_mib", self.flow.topic_size_mib, 1, 102_400)
        if self.max_attempts is not None:
            check_range("max_attempts", self.max_attempts, 1, 1_000_000)
        self._check_times()
        self._check_start()
        check_type("orderly", self.orderly, bool, "True or False")
        check_type("auto_commit", self.auto_commit, bool, "True or False")
        check_type("broadcasting", self.broadcasting, bool, "True or False")
        check_type("offsets_dir", self.offsets_dir, str | PathLike, "a path")
        self._check_order()

    def _check_order(self) -> None:
        names = (("order", ORDERS), ("without_key", WITHOUT_KEY), ("workers", WORKERS))
        for name, known in names:
            if (value := getattr(self, name)) not in known:
                raise SettingsError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        if self.orderly != (self.order == "queue"):
            raise SettingsError(f"orderly is {self.orderly} and order is {self.order!r}: say one")
        if not (self.key is None or isinstance(self.key, str) or callable(self.key)):
            raise SettingsError(
                f"key is {self.key!r}; it must be the name of a property, or a function of a "
                "message"
            )
        if self.key is not None and not self.is_by_key:
            raise SettingsError("key is given, and the order is not by key: say order='key' too")
        if self.is_by_key and (self.broadcasting or not self.auto_commit):
            raise SettingsError(
                "order='key' goes neither with broadcasting nor with auto_commit=False"
            )
        check_type("breaker", self.breaker, BreakerLimits | None, "BreakerLimits")

    def _check_times(self) -> None:
        for name in (
            "retry_in_place_s",
            "consume_timeout_s",
            "persist_s",
            "rebalance_s",
            "lock_renew_s",
            "lock_valid_s",
            "poll_suspend_s",
        ):
            check_seconds(name, getattr(self, name))
        for name in ("stop_timeout_s", "rejoin_grace_s"):
            check_seconds(name, getattr(self, name), may_be_zero=True)
        if not 0 < self.lock_renew_s < self.lock_valid_s:
            raise SettingsError(
                f"lock_renew_s is {self.lock_renew_s} and lock_valid_s {self.lock_valid_s}: "
                "a lock must be renewed before it runs out"
            )

    def _check_start(self) -> None:
        if self.consume_timestamp_ms is not None:
            check_range("consume_timestamp_ms", self.consume_timestamp_ms, 0, (1 << 63) - 1)
        elif self.consume_from is ConsumeFrom.TIMESTAMP:
            raise SettingsError(
                "consume_from is TIMESTAMP: say which with consume_timestamp_ms (epoch ms)"
            )


def resolve_names(own: dict[str, Any]) -> None:
    """Replace names of settings' values by what they stand for, and drop a None."""
    if "consume_from" in own:
        own["consume_from"] = consume_from_of(own["consume_from"])
    if "allocate" in own:
        own["allocate"] = allocation_of(own["allocate"])
    if own.get("flow", ...) is None:
        del own["flow"]


def consume_from_of(consume_from: ConsumeFrom | str) -> ConsumeFrom:
    """The place that a name stands for, short as "first" or RocketMQ's, in any case.

    Raises SettingsError for another name.
    """
    if isinstance(consume_from, ConsumeFrom):
        return consume_from
    names = {name: one for one in ConsumeFrom for name in (one.name, one.value)}
    found = names.get(consume_from.upper()) if isinstance(consume_from, str) else None
    if found is None:
        choices = ", ".join(f"{one.name.lower()!r}" for one in ConsumeFrom)
        raise SettingsError(
            f"consume_from is {consume_from!r}; it must be one of {choices}, or of ConsumeFrom"
        )
    return found


def allocation_of(allocate: Allocate | str) -> Allocate:
    """The function that one of RocketMQ's names stands for, in any case, or the function given.

    Raises SettingsError for another name.
    """
    found = STRATEGIES.get(allocate.upper()) if isinstance(allocate, str) else allocate
    if not callable(found):
        raise SettingsError(
            f"allocate is {allocate!r}; it must be {', '.join(STRATEGIES)} or a function as in "
            "cometmq.rules.allocate"
        )
    return found
