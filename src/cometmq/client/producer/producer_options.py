"""What a producer can be told by name, beside what every client takes.

Owns the names and how they become options; refuses to know what uses them. A new setting is a field
of `ProducerOptions` and of `ProducerSettings`, nothing else.
Java: DefaultMQProducer, TransactionMQProducer (their fields)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.consumer_options import check_names
from cometmq.client.session.client_options import (
    CLIENT_SETTINGS,
    ClientOptions,
    ClientSettings,
    ProducerOptions,
    check_group,
    client_options,
)
from cometmq.rules.namespace import wrap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.session.client_options import Check


class ProducerSettings(ClientSettings, total=False):
    """The settings that a producer takes by name."""

    retries: int
    compress_over_bytes: int
    compress_level: int
    body_bytes_max: int
    default_topic_queues: int
    pending_max: int
    check: Check | None
    retry_not_ok: bool
    latency_fault: str
    detect_faults: bool
    keys: str
    strict_order: bool
    compression: str


def producer_options(
    group: str, settings: ProducerSettings, environ: Mapping[str, str]
) -> tuple[ClientOptions, ProducerOptions]:
    """Make the options of a producer from what was given by name; the rest has its default.

    Raises TypeError for a name that is none, SettingsError for a value that cannot be.
    """
    given: dict[str, Any] = dict(settings)
    check_names(given, ProducerSettings.__annotations__)
    own = {name: value for name, value in given.items() if name not in CLIENT_SETTINGS}
    client = client_options(given, environ)
    check_group(group)
    own["instance_id"] = client.namespace
    return client, ProducerOptions(group=wrap(client.namespace, group), **own)
