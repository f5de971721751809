"""A table of messages that a group gives up: a sink for `OnFailure.store`.

Owns the columns; knows nothing of when a message is given
up and what happens to its row. Invariant: one row a message, as long as one writer at a time has
its queue, which holds for consumers in order: a second attempt finds the row.
Java: nothing alike
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cometmq.client.failures.message_table import PLACE, MessageTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.handling.handler_call import FailureDetails
    from cometmq.model.message import MessageExt

_COLUMNS = {
    **PLACE,
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
        self._table = MessageTable(connect, table, _COLUMNS, paramstyle)

    def schema(self, body_type: str = "BLOB") -> str:
        """Return a CREATE TABLE statement; PostgreSQL's `body_type` is BYTEA."""
        return self._table.schema(body_type)

    def __call__(self, message: MessageExt, failure: FailureDetails) -> None:
        """Write the row and commit it."""
        self._table.add(_row(message, failure))


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
