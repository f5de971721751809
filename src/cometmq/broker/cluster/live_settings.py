"""The settings of a running broker, and what happens when an administrator changes them (25, 26).

Owns the one reference that is swapped, its version, and the settings file. Refuses to know what a
setting does: whoever works with one subscribes to `on_broker` or `on_store`. Invariant: a change is
in the file, where there is one, before anything works with it.
Java: Configuration, AdminBrokerProcessor (updateBrokerConfig, getBrokerConfig).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.broker.cluster.table_writer import not_written
from cometmq.errors import Reject, SettingsError
from cometmq.model.topic import DataVersion
from cometmq.net.endpoint import Effect, Endpoint
from cometmq.net.handler import Reply
from cometmq.settings.properties import edited
from cometmq.settings.update import ForbiddenKeyError, Update, table_of, update
from cometmq.wire.bodies.topic import encode_data_version
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.admin import GetBrokerConfigResponseHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.runtime.text_file import TextFile
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.net import NetSettings
    from cometmq.settings.store import StoreSettings
    from cometmq.wire.command import Command

IN_MEMORY = "kept until the broker stops: it was started without a settings file"


class LiveSettings:
    """The settings in force. Belongs to the broker's loop."""

    def __init__(
        self,
        broker: BrokerSettings,
        store: StoreSettings,
        net: NetSettings,
        file: TextFile | None,
        now_ms: Callable[[], int],
    ) -> None:
        self.broker, self.store, self.net = broker, store, net
        self._file, self._now_ms = file, now_ms
        self._changing = asyncio.Lock()
        self.version = DataVersion(timestamp=now_ms())
        self.on_broker: list[Callable[[BrokerSettings], None]] = []
        self.on_store: list[Callable[[StoreSettings], None]] = []

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(Code.GET_BROKER_CONFIG, self.tell),
            Endpoint(Code.UPDATE_BROKER_CONFIG, self.change, Effect.MUTATING),
        )

    def tell(self, _request: Command, _connection: Connection) -> Reply:
        """Tell all settings as the text of a properties file (26)."""
        found = table_of((self.broker, self.store, self.net))
        text = "".join(f"{key}={value}\n" for key, value in found.items())
        version = encode_data_version(self.version).decode()
        return Reply(header=GetBrokerConfigResponseHeader(version=version), body=text.encode())

    async def change(self, request: Command, _connection: Connection) -> Reply:
        """Change settings (25): all that the request names, or none and the reason.

        The remark says what has no effect here, and whether a restart forgets the change.
        """
        async with self._changing:
            return await self._change(request)

    async def _change(self, request: Command) -> Reply:
        try:
            wanted = update(
                (self.broker, self.store, self.net), request.body.decode("utf-8", "replace")
            )
        except ForbiddenKeyError as error:
            raise Reject(ResponseCode.NO_PERMISSION, str(error)) from error
        except SettingsError as error:
            raise Reject(ResponseCode.SYSTEM_ERROR, str(error)) from error
        remarks = list(wanted.warnings)
        if wanted.values:
            if self._file is not None:
                await asyncio.to_thread(_save, self._file, wanted.values)
            self._take(wanted)
            if self._file is None:
                remarks.append(IN_MEMORY)
        self.version = self.version.next(self._now_ms())
        return Reply(remark="; ".join(remarks) or None)

    def _take(self, wanted: Update) -> None:
        broker, store = self.broker, self.store
        self.broker, self.store, self.net = wanted.settings
        if self.broker != broker:
            for adjust in self.on_broker:
                adjust(self.broker)
        if self.store != store:
            for adjust_store in self.on_store:
                adjust_store(self.store)


def _save(file: TextFile, values: dict[str, str]) -> None:
    """In a thread."""
    try:
        file.save(edited(file.read(), values))
    except OSError as error:
        raise not_written("settings", error) from error
