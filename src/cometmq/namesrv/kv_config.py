"""Texts by namespace and key, which operators put into a name server.

Owns the table and its JSON form. Refuses to know files: `save` gets the whole table with each
change and returns when it is kept; it runs in a thread, one change after the other. Namespace
ORDER_TOPIC_CONFIG holds the queues of order topics.
Form: {"configTable":{namespace:{key:value}}}. Java: KVConfigManager.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, Reject, SettingsError
from cometmq.wire import fastjson
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable


Table = dict[str, dict[str, str]]
"""Texts by namespace and key; never changed in place."""

TEXTS_MAX = 100_000
"""Texts of all namespaces."""

TEXT_MAX = 65_536
"""Characters of a text with its key and namespace."""


class KvConfig:
    """The table. A change that cannot be saved is not made."""

    def __init__(self, form: bytes | None, save: Callable[[Table], None] | None = None) -> None:
        """Read the form, None where there was never one; SettingsError when it is none."""
        self._table = {} if form is None else _read(form)
        self._save = save
        self._changing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        """Return one text, or None."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all texts of a namespace, or None when it never had any."""
        found = self._table.get(namespace)
        return None if found is None else dict(found)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a text; raises Reject for one that is too long, one too many or not written."""
        if len(namespace) + len(key) + len(value) > TEXT_MAX:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"a KV text has at most {TEXT_MAX} characters")
        async with self._changing:
            is_new = key not in self._table.get(namespace, {})
            if is_new and sum(map(len, self._table.values())) >= TEXTS_MAX:
                raise Reject(ResponseCode.SYSTEM_ERROR, f"there are {TEXTS_MAX} KV texts already")
            await self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a text; nothing happens when there is none. Raises Reject when not written."""
        async with self._changing:
            found = self._table.get(namespace, {})
            if key in found:
                await self._replace(namespace, {k: v for k, v in found.items() if k != key})

    async def _replace(self, namespace: str, texts: dict[str, str]) -> None:
        table = {**self._table, namespace: texts}
        if self._save is not None:
            try:
                await asyncio.to_thread(self._save, table)
            except OSError as error:
                raise Reject(
                    ResponseCode.SYSTEM_ERROR,
                    f"the KV configuration cannot be written: {error.strerror or error}",
                ) from error
        self._table = table


def encode(table: Table) -> bytes:
    """The form of a table."""
    return fastjson.dumps({"configTable": table})


def _read(form: bytes) -> Table:
    if not form.strip():
        raise SettingsError("the KV configuration is empty")
    try:
        table = fastjson.loads(form)["configTable"]
        return {
            str(namespace): {str(key): str(value) for key, value in texts.items()}
            for namespace, texts in table.items()
        }
    except (ProtocolError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"the KV configuration cannot be read: {error}") from error
