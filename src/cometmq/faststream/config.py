"""What all parts of a FastStream broker of ours share: connection, producer, log columns.

Java: none
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

from cometmq.client.session.client_identity import unique_instance_name
from cometmq.faststream.producer import StreamProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

    from cometmq.client.producer.async_producer import AsyncProducer


@dataclass(kw_only=True)
class StreamBrokerConfig(BrokerConfig):
    """The configuration of one broker, or of a router before it is included."""

    producer: StreamProducer = field(default_factory=StreamProducer)
    client_settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings of all clients that the broker makes: name servers, keys, TLS."""
    group: str = "faststream"
    """The producer group; subscribers that name no group have one of it and their topic."""

    def connect(self, client: AsyncProducer) -> None:
        """Publish through this client from now on."""
        self.producer.connect(client, self.fd_config._serializer, self.broker_codec)

    def disconnect(self) -> None:
        """Publish nothing any more."""
        self.producer.disconnect()


def client_settings(config: StreamBrokerConfig) -> dict[str, Any]:
    """The settings of a client that starts now, with a name that no other client has."""
    return {"instance_name": f"faststream-{unique_instance_name()}", **config.client_settings}


class StreamLogColumns(DefaultLoggerStorage):
    """FastStream's logger with columns for topic and group."""

    __slots__ = ("_widths", "logger_log_level")

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 4, "group": 5}
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        """Log from this level on."""
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make the columns wide enough for one more subscriber."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """The logger, made at its first use."""
        if not (found := self._get_logger_ref()):
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
            found = get_broker_logger(
                name="cometmq",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=10,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(found)
        return found


def logger_state(logger: LoggerProto | None = EMPTY, log_level: int = logging.INFO) -> Any:
    """The state of a broker's logger."""
    return make_logger_state(
        logger=logger, log_level=log_level, default_storage_cls=StreamLogColumns
    )
