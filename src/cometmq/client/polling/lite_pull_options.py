"""The settings that a polling consumer takes by name, and the options made from them.

Owns the options that a push consumer does not have; those that both have are checked by
`consumer_options`.
Java: DefaultLitePullConsumer (its fields)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.consumer_options import (
    BROADCAST_INSTANCE,
    ConsumerOptions,
    resolve_names,
)
from cometmq.client.session.client_identity import unique_instance_name
from cometmq.client.session.client_options import (
    CLIENT_SETTINGS,
    ClientOptions,
    ClientSettings,
    check_group,
    check_names,
    check_range,
    check_seconds,
    check_type,
    client_options,
)
from cometmq.rules.namespace import with_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from cometmq.model.results import ConsumeFrom
    from cometmq.rules.allocate import Allocate
    from cometmq.rules.queues.flow_control import FlowLimits

_PULL_BATCH_SIZE = 10
_PULL_BATCH_BYTES = 2_147_483_647
_SUSPEND_S = 20.0
_INSTANCE_MARK = "@STREAM"


class LitePullSettings(ClientSettings, total=False):
    """The settings that a lite pull consumer takes by name."""

    auto_commit: bool
    auto_commit_s: float
    cached_max: int
    broadcasting: bool
    offsets_dir: str | PathLike[str]
    pull_batch_size: int
    inflated_bytes_max: int
    consume_from: ConsumeFrom | str
    consume_timestamp_ms: int | None
    allocate: Allocate | str
    flow: FlowLimits | None
    persist_s: float
    rebalance_s: float
    poll_suspend_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions:
    """How positions are committed and how much is pulled ahead."""

    auto_commit: bool = True
    auto_commit_s: float = 5.0
    cached_max: int = 10_000

    def __post_init__(self) -> None:
        """Refuse what RocketMQ's consumers refuse."""
        check_type("auto_commit", self.auto_commit, bool, "True or False")
        check_seconds("auto_commit_s", self.auto_commit_s)
        check_range("cached_max", self.cached_max, 1, 6_553_500)


def lite_pull_options(
    group: str, settings: LitePullSettings, environ: Mapping[str, str]
) -> tuple[ClientOptions, ConsumerOptions, LitePullOptions]:
    """Make the options of a lite pull consumer from keyword arguments.

    Raises TypeError for an unknown name, SettingsError for a bad value.
    """
    given: dict[str, Any] = dict(settings)
    check_names(given, LitePullSettings.__annotations__)
    lite = {name: given[name] for name in LitePullOptions.__slots__ if name in given}
    own = {
        name: value
        for name, value in given.items()
        if name not in CLIENT_SETTINGS and name not in lite
    }
    resolve_names(own)
    if own.get("pull_batch_size") is None:
        own["pull_batch_size"] = _PULL_BATCH_SIZE
    own.setdefault("poll_suspend_s", _SUSPEND_S)
    check_group(group)
    instance = given.get("instance_name")
    check_type("instance_name", instance, str | None, "a text")
    if instance is None:
        is_broadcast = own.get("broadcasting") is True
        instance = BROADCAST_INSTANCE if is_broadcast else unique_instance_name()
    given["instance_name"] = f"{instance}{_INSTANCE_MARK}"
    client = client_options(given, environ)
    wrapped = with_namespace(client.namespace, group)
    options = ConsumerOptions(group=wrapped, pull_batch_bytes=_PULL_BATCH_BYTES, **own)
    return client, options, LitePullOptions(**lite)
