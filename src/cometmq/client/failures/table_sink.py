"""A table of messages that a group gives up: a sink for `OnFailure.store`.

Owns the columns and their SQL for any DB-API connection; knows nothing of when a message is given
up and what happens to its row. Invariant: one row a message, as long as one writer at a time has
its queue, which holds for consumers in order: a second attempt finds the row.
Java: nothing alike
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.handling.handler_call import FailureDetails
    from cometmq.model.message import MessageExt

_TYPES = {
    "topic": "VARCHAR(255)",
    "broker_name": "VARCHAR(255)",
    "queue_id": "INTEGER",
    "queue_offset": "BIGINT",
    "msg_id": "VARCHAR(255)",
    "message_keys": "TEXT",
    "tag": "TEXT",
    "sharding_key": "TEXT",
    "body": "",
    "properties": "TEXT",
    "attempts": "INTEGER",
    "error_type": "TEXT",
    "reason": "TEXT",
    "stored_ms": "BIGINT",
    "failed_ms": "BIGINT",
}
_PLACE = ("topic", "broker_name", "queue_id", "queue_offset")
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class TableSink:
    """Writes one row a message into a table, over a DB-API connection of its own each time.

    `connect` returns a new connection, as `lambda: sqlite3.connect("failed.db")`; it is called in a
    thread of the consumer. `paramstyle` is that of the driver: "qmark" (SQLite), "format" or
    "pyformat" (PostgreSQL, MySQL). The columns: topic, broker_name, queue_id, queue_offset, msg_id,
    message_keys (a JSON list), tag, sharding_key, body (bytes), properties (a JSON object),
    attempts, error_type, reason, stored_ms and failed_ms (epoch ms). A message whose row is there
    already is not written again. Raises SettingsError for a bad name or paramstyle; a call raises
    what the driver raises, and the message waits.
    """

    def __init__(
        self, connect: Callable[[], Any], table: str, *, paramstyle: str = "qmark"
    ) -> None:
        if not callable(connect):
            raise SettingsError(f"connect is {connect!r}; it must be a function without arguments")
        if not isinstance(table, str) or not _NAME.fullmatch(table):
            raise SettingsError(f"table is {table!r}, which is no name of a table")
        mark = _MARKS.get(paramstyle) if isinstance(paramstyle, str) else None
        if mark is None:
            raise SettingsError(f"paramstyle is {paramstyle!r}; it must be {', '.join(_MARKS)}")
        self._connect = connect
        self._table = table
        where = " AND ".join(f"{name} = {mark}" for name in _PLACE)
        marks = ", ".join([mark] * len(_TYPES))
        self._look = f"SELECT 1 FROM {table} WHERE {where}"
        self._insert = f"INSERT INTO {table} ({', '.join(_TYPES)}) VALUES ({marks})"

    def schema(self, body_type: str = "BLOB") -> str:
        """Return a CREATE TABLE statement; PostgreSQL's `body_type` is BYTEA."""
        if not isinstance(body_type, str):
            raise SettingsError(f"body_type is {body_type!r}; it must be a type of SQL, as 'BLOB'")
        columns = ", ".join(f"{name} {kind or body_type}" for name, kind in _TYPES.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            f"({columns}, PRIMARY KEY ({', '.join(_PLACE)}))"
        )

    def __call__(self, message: MessageExt, failure: FailureDetails) -> None:
        """Write the row and commit it."""
        row = _row(message, failure)
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._look, row[: len(_PLACE)])
            if cursor.fetchone() is None:
                cursor.execute(self._insert, row)
                connection.commit()


def _row(message: MessageExt, failure: FailureDetails) -> tuple[object, ...]:
    return (
        message.topic,
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.msg_id,
        json.dumps(message.keys),
        message.tags,
        message.sharding_key,
        message.body,
        json.dumps(message.properties),
        failure.attempts,
        failure.kind.__name__,
        failure.reason,
        message.store_ms,
        failure.failed_ms,
    )
