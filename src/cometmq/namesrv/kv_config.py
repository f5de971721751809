"""Texts by namespace and key, which operators put into a name server.

Owns the table, its JSON, and the answer with the texts of each namespace, which a thread encodes
when one of them changes. Refuses to know files: `save` gets the whole table with each change and
returns when it is kept; it runs in that thread, one change after the other. Namespace
ORDER_TOPIC_CONFIG holds the queues of order topics.
JSON: {"configTable":{namespace:{key:value}}}. Java: KVConfigManager.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError, Reject, SettingsError
from cometmq.wire import fastjson
from cometmq.wire.bodies.name_lists import encode_kv_table
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable


Table = dict[str, dict[str, str]]
"""Texts by namespace and key; never changed in place."""

TEXTS_MAX = 100_000
"""Texts of all namespaces; one without any counts as one, for it stays, as at Apache's."""

TEXT_MAX = 65_536
"""Characters of a text with its key and namespace."""

CHARS_MAX = 4 * 1024 * 1024
"""Characters of all texts with their keys and namespaces."""


class KvConfig:
    """The table. A change that cannot be saved is not made."""

    def __init__(self, stored: bytes | None, save: Callable[[Table], None] | None = None) -> None:
        """Read what was stored, None where nothing ever was; SettingsError when it is no table."""
        self._table = {} if stored is None else _read(stored)
        self._encoded = {name: encode_kv_table(texts) for name, texts in self._table.items()}
        self._count = sum(map(_count_of, self._table.values()))
        self._chars = sum(map(_chars_of, self._table, self._table.values()))
        self._save = save
        self._changing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        """Return one text, or None."""
        return self._table.get(namespace, {}).get(key)

    def encoded(self, namespace: str) -> bytes | None:
        """All texts of a namespace as the answer with them, or None where there never was one."""
        return self._encoded.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a text; raises Reject for one that is too long, one too many or not written."""
        if len(namespace) + len(key) + len(value) > TEXT_MAX:
            raise Reject(ResponseCode.SYSTEM_ERROR, f"a KV text has at most {TEXT_MAX} characters")
        async with self._changing:
            before = self._table.get(namespace)
            texts = {**(before or {}), key: value}
            if self._count + _count_of(texts) - _count_of(before) > TEXTS_MAX:
                raise Reject(ResponseCode.SYSTEM_ERROR, f"there are {TEXTS_MAX} KV texts already")
            more = _chars_of(namespace, texts) - _chars_of(namespace, before)
            if more > 0 and self._chars + more > CHARS_MAX:
                raise Reject(
                    ResponseCode.SYSTEM_ERROR,
                    f"the KV texts have {self._chars} characters, the limit is {CHARS_MAX}; "
                    "delete some",
                )
            await self._replace(namespace, texts)

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a text; nothing happens when there is none. Raises Reject when not written."""
        async with self._changing:
            found = self._table.get(namespace, {})
            if key in found:
                await self._replace(namespace, {k: v for k, v in found.items() if k != key})

    async def _replace(self, namespace: str, texts: dict[str, str]) -> None:
        before = self._table.get(namespace)
        table = {**self._table, namespace: texts}
        try:
            encoded = await asyncio.to_thread(self._encode_and_save, table, texts)
        except OSError as error:
            raise Reject(
                ResponseCode.SYSTEM_ERROR,
                f"the KV configuration cannot be written: {error.strerror or error}",
            ) from error
        self._table = table
        self._count += _count_of(texts) - _count_of(before)
        self._chars += _chars_of(namespace, texts) - _chars_of(namespace, before)
        self._encoded[namespace] = encoded

    def _encode_and_save(self, table: Table, texts: dict[str, str]) -> bytes:
        """In a thread."""
        encoded = encode_kv_table(texts)
        if self._save is not None:
            self._save(table)
        return encoded


def _count_of(texts: dict[str, str] | None) -> int:
    return 0 if texts is None else max(len(texts), 1)


def _chars_of(namespace: str, texts: dict[str, str] | None) -> int:
    if not texts:
        return 0 if texts is None else len(namespace)
    return sum([len(namespace) + len(key) + len(value) for key, value in texts.items()])


def encode(table: Table) -> bytes:
    """The JSON of a table."""
    return fastjson.dumps({"configTable": table})


def _read(stored: bytes) -> Table:
    if not stored.strip():
        raise SettingsError("the KV configuration is empty")
    try:
        table = fastjson.loads(stored)["configTable"]
        return {
            str(namespace): {str(key): str(value) for key, value in texts.items()}
            for namespace, texts in table.items()
        }
    except (ProtocolError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"the KV configuration cannot be read: {error}") from error
