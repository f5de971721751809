"""Requests of administrators about the settings of a running role: tell all, change some.

Owns the settings file and the order of changes. Refuses to know codes and what a setting does
(`settings/live_settings` has who works with it). Invariant: a change is in the file, where there is
one, before anything works with it. Java: AdminBrokerProcessor and DefaultRequestProcessor
(updateConfig, getConfig).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import Reject, SettingsError
from cometmq.net.handler import Reply
from cometmq.settings.properties import edited
from cometmq.settings.renamed_keys import RENAMED
from cometmq.settings.update import ForbiddenKeyError
from cometmq.wire.codes import ResponseCode

CHANGE_BYTES_MAX = 64 * 1024
"""Longest text of settings to change."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.net.connection import Connection
    from cometmq.runtime.text_file import TextFile
    from cometmq.settings.live_settings import LiveSettings
    from cometmq.wire.command import Command


class ConfigRequests:
    """Answers such requests. Belongs to the role's loop."""

    def __init__(
        self,
        live: LiveSettings,
        file: TextFile | None,
        role: str,
        not_written: Callable[[TextFile, OSError], Reject],
    ) -> None:
        """`role` is what to call the server; `not_written` makes the refusal of the disk's."""
        self._live = live
        self._file = file
        self._in_memory = f"kept until the {role} stops: it was started without a settings file"
        self._not_written = not_written
        self._changing = asyncio.Lock()

    def get_settings(self, _request: Command, _connection: Connection) -> Reply:
        """Tell all settings as the text of a properties file."""
        return Reply(body=self._live.text().encode())

    async def change_settings(self, request: Command, _connection: Connection) -> Reply:
        """Change settings: all that the request names, or none and the reason.

        The remark says what has no effect here, and whether a restart forgets the change.
        """
        async with self._changing:
            return await self._change(request.body.decode("utf-8", "surrogateescape"))

    async def _change(self, text: str) -> Reply:
        try:
            change = self._live.prepare(text)
        except ForbiddenKeyError as error:
            raise Reject(ResponseCode.NO_PERMISSION, str(error)) from error
        except SettingsError as error:
            raise Reject(ResponseCode.SYSTEM_ERROR, str(error)) from error
        remarks = list(change.warnings)
        if change.values:
            if self._file is None:
                remarks.append(self._in_memory)
            else:
                await asyncio.to_thread(self._save, self._file, change.values)
            self._live.apply(change)
        return Reply(remark="; ".join(remarks) or None)

    def _save(self, file: TextFile, values: dict[str, str]) -> None:
        """In a thread."""
        try:
            file.save(edited(file.read(), values, RENAMED))
        except OSError as error:
            raise self._not_written(file, error) from error
