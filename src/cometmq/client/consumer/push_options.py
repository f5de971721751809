"""The settings that a push consumer takes by name, and the options made from them.

Owns the names and what follows from one for another; what the options may be is checked by
`consumer_options`, which polling consumers share.
Java: DefaultMQPushConsumer (its fields)
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cometmq.client.consumer.consumer_options import (
    BROADCAST_INSTANCE,
    SPAN_BY_KEY,
    ConsumerOptions,
    resolve_names,
)
from cometmq.client.session.client_options import (
    CLIENT_SETTINGS,
    ClientOptions,
    ClientSettings,
    check_group,
    check_names,
    check_type,
    client_options,
)
from cometmq.rules.failures.failure_policy import policies
from cometmq.rules.namespace import with_namespace
from cometmq.rules.queues.flow_control import FlowLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from cometmq.client.consumer.consumer_options import WithoutKey
    from cometmq.model.message import MessageExt
    from cometmq.model.results import ConsumeFrom
    from cometmq.rules.allocate import Allocate
    from cometmq.rules.failures.circuit_breaker import BreakerLimits
    from cometmq.rules.failures.failure_policy import FailurePolicy, Policies


class PushSettings(ClientSettings, total=False):
    """The settings that a push consumer takes by name."""

    orderly: bool
    broadcasting: bool
    offsets_dir: str | PathLike[str]
    consume_threads: int
    batch_size: int
    pull_batch_size: int | None
    pull_batch_bytes: int
    inflated_bytes_max: int
    pull_interval_ms: int
    max_attempts: int | None
    suspend_ms: int
    auto_commit: bool
    retry_in_place_s: float
    consume_timeout_s: float
    consume_from: ConsumeFrom | Literal["first", "last", "timestamp"]
    consume_timestamp_ms: int | None
    allocate: Allocate | Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
    flow: FlowLimits | None
    persist_s: float
    rebalance_s: float
    lock_renew_s: float
    lock_valid_s: float
    rejoin_grace_s: float
    stop_timeout_s: float
    poll_suspend_s: float
    order: Literal["none", "queue", "key"]
    key: str | Callable[[MessageExt], Hashable] | None
    without_key: WithoutKey
    state_dir: Path | str
    on_failure: FailurePolicy | Policies | None
    breaker: BreakerLimits | None
    workers: Literal["thread", "process"]


def push_options(
    group: str, settings: PushSettings, environ: Mapping[str, str], *, may_divert: bool = False
) -> tuple[ClientOptions, ConsumerOptions]:
    """Make the options of a push consumer from keyword arguments; the rest has its default.

    `may_divert`: whether a policy may divert keys. Raises TypeError for an unknown name,
    SettingsError for a bad value.
    """
    given: dict[str, Any] = dict(settings)
    check_names(given, PushSettings.__annotations__)
    own = {name: value for name, value in given.items() if name not in CLIENT_SETTINGS}
    resolve_names(own)
    own.setdefault("order", "queue" if own.get("orderly") else "none")
    own.setdefault("orderly", own["order"] == "queue")
    if own["order"] == "key":
        own.setdefault("flow", FlowLimits(span=SPAN_BY_KEY))
    if "state_dir" in own:
        check_type("state_dir", own["state_dir"], str | PathLike, "a path")
        own["state_dir"] = Path(own["state_dir"])
    if "on_failure" in own:
        may_park = own["order"] == "key" and not may_divert
        own["on_failure"] = policies(own["on_failure"], may_divert=may_divert, may_park=may_park)
    check_group(group)
    if own.get("broadcasting") is True and given.get("instance_name") is None:
        given["instance_name"] = BROADCAST_INSTANCE
    client = client_options(given, environ)
    return client, ConsumerOptions(group=with_namespace(client.namespace, group), **own)
