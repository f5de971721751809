"""The settings of a running name server, and what an administrator asks of them (318, 319).

Owns the one reference that is swapped, and the settings file. Invariant: a change is in the file,
where there is one, before anything works with it.
Java: Configuration, DefaultRequestProcessor (updateConfig, getConfig).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import Reject, SettingsError
from cometmq.net.endpoint import Effect, Endpoint
from cometmq.net.handler import Reply
from cometmq.settings.properties import edited
from cometmq.settings.update import ForbiddenKeyError, table_of, update
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.runtime.text_file import TextFile
    from cometmq.settings.namesrv import NamesrvSettings
    from cometmq.settings.net import NetSettings
    from cometmq.wire.command import Command

IN_MEMORY = "kept until the name server stops: it was started without a settings file"


class LiveSettings:
    """The settings in force. Belongs to the name server's loop."""

    def __init__(self, namesrv: NamesrvSettings, net: NetSettings, file: TextFile | None) -> None:
        self.namesrv, self.net = namesrv, net
        self._file = file
        self._changing = asyncio.Lock()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.UPDATE_NAMESRV_CONFIG, self.change, Effect.MUTATING),
            Endpoint(RequestCode.GET_NAMESRV_CONFIG, self.tell),
        )

    def tell(self, _request: Command, _connection: Connection) -> Reply:
        """Tell all settings as the text of a properties file (319)."""
        found = table_of((self.namesrv, self.net))
        return Reply(body="".join(f"{key}={value}\n" for key, value in found.items()).encode())

    async def change(self, request: Command, _connection: Connection) -> Reply:
        """Change settings (318): all that the request names, or none and the reason.

        The remark says what has no effect here, and whether a restart forgets the change.
        """
        async with self._changing:
            return await self._change(request)

    async def _change(self, request: Command) -> Reply:
        try:
            wanted = update((self.namesrv, self.net), request.body.decode("utf-8", "replace"))
        except ForbiddenKeyError as error:
            raise Reject(ResponseCode.NO_PERMISSION, str(error)) from error
        except SettingsError as error:
            raise Reject(ResponseCode.SYSTEM_ERROR, str(error)) from error
        remarks = list(wanted.warnings)
        if wanted.values:
            if self._file is None:
                remarks.append(IN_MEMORY)
            else:
                await asyncio.to_thread(self._save, self._file, wanted.values)
            self.namesrv, self.net = wanted.settings
        return Reply(remark="; ".join(remarks) or None)

    def _save(self, file: TextFile, values: dict[str, str]) -> None:
        try:
            file.save(edited(file.read(), values))
        except OSError as error:
            remark = f"{file.path} cannot be written: {error.strerror or error}"
            raise Reject(ResponseCode.SYSTEM_ERROR, remark) from error
