"""What a producer, a consumer or an admin can be told, with RocketMQ's defaults and ranges.

Owns the settings and their checks; refuses to know what uses them. Invariant: an object of this
file is valid, or was never made.
Java: ClientConfig, DefaultMQProducer, DefaultMQPushConsumer (their fields)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.model.results import ConsumeFrom
from cometmq.rules.allocate import STRATEGIES
from cometmq.rules.flow import FlowLimits
from cometmq.rules.names import group_problem
from cometmq.rules.retry import SUSPEND_MS_MAX, SUSPEND_MS_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import UnionType

    from cometmq.rules.allocate import Allocate

NAMESRV_VARIABLE = "NAMESRV_ADDR"
_FORBIDDEN_GROUPS = {"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What every client has: where to ask, and how often to look."""

    namesrv: tuple[str, ...]
    instance_name: str | None = None
    connect_timeout_s: float = 3.0
    call_timeout_s: float = 3.0
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0

    def __post_init__(self) -> None:
        """Check every value."""
        _check_type("instance_name", self.instance_name, str | None, "a text")
        for name in ("connect_timeout_s", "call_timeout_s", "route_refresh_s", "heartbeat_s"):
            _check_seconds(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer sends."""

    group: str
    retries: int = 2
    compress_over_bytes: int = 4096
    compress_level: int = 5
    body_bytes_max: int = 4 * 1024 * 1024
    default_topic_queues: int = 4
    pending_max: int = 65_535

    def __post_init__(self) -> None:
        """Refuse what RocketMQ's producers refuse."""
        check_group(self.group)
        _check_range("retries", self.retries, 0, 1000)
        _check_range("compress_over_bytes", self.compress_over_bytes, 0, 1 << 30)
        _check_range("compress_level", self.compress_level, 0, 9)
        _check_range("body_bytes_max", self.body_bytes_max, 1, 1 << 30)
        _check_range("default_topic_queues", self.default_topic_queues, 1, 65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a push consumer pulls, runs its handlers and commits."""

    group: str
    orderly: bool = False
    consume_threads: int = 20
    batch_size: int = 1
    pull_batch_size: int = 32
    pull_batch_bytes: int = 262_144
    pull_interval_ms: int = 0
    max_attempts: int | None = None
    suspend_ms: int = 1000
    retry_in_place_s: float = 5.0
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

    def __post_init__(self) -> None:
        """Refuse what RocketMQ's consumers refuse."""
        check_group(self.group)
        _check_range("consume_threads", self.consume_threads, 1, 1000)
        _check_range("batch_size", self.batch_size, 1, 1024)
        _check_range("pull_batch_size", self.pull_batch_size, 1, 1024)
        _check_range("pull_interval_ms", self.pull_interval_ms, 0, 65_535)
        _check_range("suspend_ms", self.suspend_ms, SUSPEND_MS_MIN, SUSPEND_MS_MAX)
        _check_type("flow", self.flow, FlowLimits, "FlowLimits")
        _check_range("flow.count", self.flow.count, 1, 65_535)
        _check_range("flow.span", self.flow.span, 1, 65_535)
        _check_range("flow.size_mib", self.flow.size_mib, 1, 1024)
        if self.max_attempts is not None:
            _check_range("max_attempts", self.max_attempts, 1, 1_000_000)
        self._check_times()
        self._check_beginning()
        _check_type("orderly", self.orderly, bool, "True or False")

    def _check_times(self) -> None:
        for name in (
            "retry_in_place_s",
            "persist_s",
            "rebalance_s",
            "lock_renew_s",
            "lock_valid_s",
            "poll_suspend_s",
        ):
            _check_seconds(name, getattr(self, name))
        _check_seconds("stop_timeout_s", self.stop_timeout_s, may_be_zero=True)
        if not 0 < self.lock_renew_s < self.lock_valid_s:
            raise SettingsError(
                f"lock_renew_s is {self.lock_renew_s} and lock_valid_s {self.lock_valid_s}: "
                "a lock must be renewed before it runs out"
            )

    def _check_beginning(self) -> None:
        if self.consume_timestamp_ms is not None:
            _check_range("consume_timestamp_ms", self.consume_timestamp_ms, 0, (1 << 63) - 1)
        elif self.consume_from is ConsumeFrom.TIMESTAMP:
            raise SettingsError(
                "consume_from is TIMESTAMP: say which with consume_timestamp_ms (epoch ms)"
            )


def beginning(consume_from: ConsumeFrom | str) -> ConsumeFrom:
    """What a name means in any case: short, as "first", or RocketMQ's. Raises SettingsError."""
    if isinstance(consume_from, ConsumeFrom):
        return consume_from
    names = {name: one for one in ConsumeFrom for name in (one.name, one.value)}
    found = names.get(consume_from.upper()) if isinstance(consume_from, str) else None
    if found is None:
        choices = ", ".join(f"ConsumeFrom.{one.name}" for one in ConsumeFrom)
        raise SettingsError(f"consume_from is {consume_from!r}; it must be one of {choices}")
    return found


def strategy(allocate: Allocate | str) -> Allocate:
    """What one of RocketMQ's names means in any case, or the function. Raises SettingsError."""
    found = STRATEGIES.get(allocate.upper()) if isinstance(allocate, str) else allocate
    if not callable(found):
        raise SettingsError(
            f"allocate is {allocate!r}; it must be {', '.join(STRATEGIES)} or a function as in "
            "cometmq.rules.allocate"
        )
    return found


def name_servers(
    namesrv: str | Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The name servers given as "host:port;host:port" or a list, else those of NAMESRV_ADDR."""
    given = environ.get(NAMESRV_VARIABLE, "") if namesrv is None else namesrv
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    if not (isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts)):
        raise SettingsError(f"namesrv is {given!r}; write 'host:9876', or a list of such texts")
    found = tuple(part.strip() for part in parts if part.strip())
    if not found:
        raise SettingsError("no name server is known: pass namesrv='host:9876' or set NAMESRV_ADDR")
    for addr in found:
        host, _, port = addr.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise SettingsError(f"the name server {addr!r} is no address; write host:port")
    return found


def check_group(group: str) -> None:
    """Raise SettingsError unless RocketMQ allows the group's name."""
    _check_type("group", group, str, "a text")
    problem = group_problem(group)
    if problem is None and group in _FORBIDDEN_GROUPS:
        problem = f"the group {group} is reserved; choose a name of your own"
    if problem:
        raise SettingsError(problem)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise SettingsError(
            f"{name} is {value!r}; it must be a whole number within {least} and {most}"
        )


def _check_seconds(name: str, value: object, *, may_be_zero: bool = False) -> None:
    number = value if isinstance(value, int | float) and type(value) is not bool else -1
    if not (0 < number < inf or (may_be_zero and number == 0)):
        least = "0 or more" if may_be_zero else "more than 0"
        raise SettingsError(f"{name} is {value!r}; it must be a number of seconds, {least}")


def _check_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    if not isinstance(value, kind):
        raise SettingsError(f"{name} is {value!r}; it must be {wanted}")
