"""Requests about the broker's settings: change some (25), return all (26).

Owns their version. Java: AdminBrokerProcessor (updateBrokerConfig, getBrokerConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.cluster.table_writer import not_written
from cometmq.model.topic import DataVersion
from cometmq.net.config_requests import CHANGE_BYTES_MAX, ConfigRequests
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.wire.bodies.topic import encode_data_version
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import GetBrokerConfigResponseHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.net.handler import Reply
    from cometmq.runtime.text_file import TextFile
    from cometmq.settings.live_settings import LiveSettings
    from cometmq.wire.command import Command


class BrokerConfigRequests(ConfigRequests):
    """Answers 25 and 26."""

    def __init__(
        self, live: LiveSettings, file: TextFile | None, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(live, file, "broker", lambda _file, error: not_written("settings", error))
        self._now_ms = now_ms
        self._version = DataVersion(timestamp=now_ms())

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.GET_BROKER_CONFIG, self.get_settings),
            Endpoint(
                RequestCode.UPDATE_BROKER_CONFIG,
                self.change_settings,
                RequestEffect.MUTATING,
                body_bytes_max=CHANGE_BYTES_MAX,
            ),
        )

    def get_settings(self, request: Command, connection: Connection) -> Reply:
        """Tell all settings, and their version."""
        reply = super().get_settings(request, connection)
        version = encode_data_version(self._version).decode()
        reply.header = GetBrokerConfigResponseHeader(version=version)
        return reply

    async def change_settings(self, request: Command, connection: Connection) -> Reply:
        """Change settings; each request that is taken makes a version."""
        reply = await super().change_settings(request, connection)
        self._version = self._version.next(self._now_ms())
        return reply
