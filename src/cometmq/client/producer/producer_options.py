"""The keyword settings of a producer, beside those that every client takes.

Owns their names and types and how they become options; refuses to know what uses them. A new
setting is one field of `ProducerOptions` and one of `ProducerSettings`, nothing else.
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
from cometmq.rules.namespace import with_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.client.session.client_options import TransactionCheck


class ProducerSettings(ClientSettings, total=False):
    """The settings that a producer takes by name."""

    retries: int
    compress_over_bytes: int
    compress_level: int
    body_bytes_max: int
    default_topic_queues: int
    pending_max: int
    check: TransactionCheck | None
    retry_not_ok: bool
    latency_fault: str
    detect_faults: bool
    keys: str
    strict_order: bool
    compression: str


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
