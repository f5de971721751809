"""The settings of a producer, beside those that every client takes: names, types and ranges.

Owns how they become options; refuses to know what uses them. Invariant: every instance of
ProducerOptions is valid. A new setting is one field of `ProducerOptions` and one of
`ProducerSettings`, nothing else.
Java: DefaultMQProducer, TransactionMQProducer (their fields)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cometmq.client.session.client_options import (
    CLIENT_SETTINGS,
    ClientOptions,
    ClientSettings,
    check_choice,
    check_compression,
    check_group,
    check_names,
    check_range,
    check_seconds,
    check_type,
    client_options,
)
from cometmq.errors import SettingsError
from cometmq.model.message import MessageExt
from cometmq.model.results import TransactionState
from cometmq.rules.failures.latency_fault_tolerance import TABLES, LatencyTable
from cometmq.rules.namespace import with_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

TransactionVerdict = TransactionState | bool | None
"""How a transaction ends: True (commit), False (roll back), None (not known yet)."""
TransactionCheck = Callable[[MessageExt], TransactionVerdict | Awaitable[TransactionVerdict]]
"""A producer's `check`: a plain or async function of a half message that a broker checks on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The settings of a producer."""

    group: str
    retries: int = 2
    attempt_timeout_s: float | None = None
    compress_over_bytes: int = 4096
    compress_level: int = 5
    body_bytes_max: int = 4 * 1024 * 1024
    default_topic_queues: int = 4
    pending_max: int = 65_535
    check: TransactionCheck | None = None
    retry_not_ok: bool = False
    latency_fault: str | LatencyTable = "off"
    detect_faults: bool = False
    keys: str = "hash"
    strict_order: bool = False
    compression: str = "zlib"
    instance_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what RocketMQ's producers refuse."""
        check_group(self.group)
        check_range("retries", self.retries, 0, 1000)
        if self.attempt_timeout_s is not None:
            check_seconds("attempt_timeout_s", self.attempt_timeout_s)
        check_range("compress_over_bytes", self.compress_over_bytes, 0, 1 << 30)
        check_range("compress_level", self.compress_level, 0, 9)
        check_range("body_bytes_max", self.body_bytes_max, 1, 1 << 30)
        check_range("default_topic_queues", self.default_topic_queues, 1, 65_535)
        check_range("pending_max", self.pending_max, 1, 65_535)
        if not isinstance(self.latency_fault, LatencyTable):
            check_choice("latency_fault", self.latency_fault, ("off", *TABLES))
        check_compression(self.compression)
        check_choice("keys", self.keys, ("hash", "balanced"))
        for name in ("retry_not_ok", "detect_faults", "strict_order"):
            check_type(name, getattr(self, name), bool, "True or False")
        if self.check is not None and not callable(self.check):
            raise SettingsError(f"check is {self.check!r}; it must be a function of a message")


class ProducerSettings(ClientSettings, total=False):
    """The settings that a producer takes by name."""

    retries: int
    attempt_timeout_s: float | None
    compress_over_bytes: int
    compress_level: int
    body_bytes_max: int
    default_topic_queues: int
    pending_max: int
    check: TransactionCheck | None
    retry_not_ok: bool
    latency_fault: Literal["off", "classic", "current"] | LatencyTable
    detect_faults: bool
    keys: Literal["hash", "balanced"]
    strict_order: bool
    compression: Literal["zlib", "lz4", "zstd"]


def producer_options(
    group: str, settings: ProducerSettings, environ: Mapping[str, str]
) -> tuple[ClientOptions, ProducerOptions]:
    """Make the options of a producer from its keyword settings; the others have their defaults.

    Raises TypeError for an unknown name, SettingsError for an invalid value.
    """
    given: dict[str, Any] = dict(settings)
    check_names(given, ProducerSettings.__annotations__)
    own = {name: value for name, value in given.items() if name not in CLIENT_SETTINGS}
    client = client_options(given, environ)
    check_group(group)
    own["instance_id"] = client.namespace
    return client, ProducerOptions(group=with_namespace(client.namespace, group), **own)
