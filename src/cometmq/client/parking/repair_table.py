"""Parked messages as rows of the user's own table: to be looked at, repaired and sent back.

Owns the columns and their SQL for any DB-API connection; leaves to the group's parking topic what
counts. Invariant: a row is taken by one operator; a repaired body is written to the parking topic
before its key is released. Java: nothing alike
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.client.blocking.admin import Admin
    from cometmq.model.parking import RedriveReport

_TYPES = {
    "topic": "VARCHAR(255)",
    "broker_name": "VARCHAR(255)",
    "queue_id": "INTEGER",
    "queue_offset": "BIGINT",
    "message_key": "TEXT",
    "message_order": "BIGINT",
    "msg_id": "VARCHAR(255)",
    "body": "",
    "reason": "TEXT",
    "attempts": "INTEGER",
    "parked_ms": "BIGINT",
    "state": "VARCHAR(16)",
    "operator": "TEXT",
}
_PLACE = ("topic", "broker_name", "queue_id", "queue_offset")
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class RepairRow(NamedTuple):
    """A row: where the message comes from, its key, body and state ("new", "taken", "sent")."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    message_key: str
    message_order: int
    msg_id: str
    body: bytes
    reason: str
    attempts: int
    parked_ms: int
    state: str
    operator: str | None


class RepairTable:
    """The parked messages of one group as rows of a table.

    `connect` returns a new DB-API connection; `paramstyle` is that of the driver: "qmark" (SQLite),
    "format" or "pyformat". Raises SettingsError for a bad name or paramstyle; calls raise what the
    driver and the admin raise, and may be made again then.
    """

    def __init__(
        self, connect: Callable[[], Any], table: str, group: str, *, paramstyle: str = "qmark"
    ) -> None:
        if not isinstance(table, str) or not _NAME.fullmatch(table):
            raise SettingsError(f"table is {table!r}, which is no name of a table")
        if paramstyle not in _MARKS:
            raise SettingsError(f"paramstyle is {paramstyle!r}; it must be {', '.join(_MARKS)}")
        self._connect = connect
        self._table = table
        self._group = group
        self._mark = _MARKS[paramstyle]
        self._where = " AND ".join(f"{name} = {self._mark}" for name in _PLACE)

    def schema(self, body_type: str = "BLOB") -> str:
        """Return a CREATE TABLE statement; PostgreSQL's `body_type` is BYTEA."""
        columns = ", ".join(f"{name} {kind or body_type}" for name, kind in _TYPES.items())
        key = ", ".join(_PLACE)
        return f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}, PRIMARY KEY ({key}))"

    def fill(self, admin: Admin) -> int:
        """Add the parked messages that have no row yet; how many."""
        added = 0
        for one in admin.parked(self._group):
            place = (one.topic, one.broker_name, one.queue_id, one.offset)
            if self._rows(f"WHERE {self._where}", place):
                continue
            body = bytes(admin.parked_message(self._group, one).body)
            facts = (one.key, one.order, one.msg_id, body, one.reason, one.attempts, one.parked_ms)
            marks = ", ".join([self._mark] * len(_TYPES))
            self._run(
                f"INSERT INTO {self._table} ({', '.join(_TYPES)}) VALUES ({marks})",
                (*place, *facts, "new", None),
            )
            added += 1
        return added

    def rows(self, state: str | None = None) -> list[RepairRow]:
        """The rows, or those in a state, those of a key in their order."""
        if state is None:
            return self._rows("", ())
        return self._rows(f"WHERE state = {self._mark}", (state,))

    def take(self, key: str, operator: str) -> list[RepairRow]:
        """Mark the new rows of a key as one operator's; those that are his, oldest first.

        Of two who ask at the same time, one gets each row.
        """
        mark = self._mark
        self._run(
            f"UPDATE {self._table} SET state = 'taken', operator = {mark} "
            f"WHERE message_key = {mark} AND state = 'new'",
            (operator, key),
        )
        where = f"WHERE message_key = {mark} AND operator = {mark} AND state = 'taken'"
        return self._rows(where, (key, operator))

    def repair(self, row: RepairRow, body: bytes) -> bool:
        """Give a row that its operator has taken another body; whether it was his still."""
        return bool(
            self._run(
                f"UPDATE {self._table} SET body = {self._mark} WHERE {self._where} "
                f"AND state = 'taken' AND operator = {self._mark}",
                (body, *row[: len(_PLACE)], row.operator),
            )
        )

    def send_back(self, admin: Admin, key: str, operator: str) -> RedriveReport:
        """Release a key, with the bodies of the rows that an operator has taken.

        Called again, by anybody, it does nothing twice: what has left is no longer parked. Rows of
        messages that have left are "sent" then.
        """
        taken = {row[: len(_PLACE)]: row for row in self.take(key, operator)}
        for one in admin.parked(self._group, key=key):
            row = taken.get((one.topic, one.broker_name, one.queue_id, one.offset))
            if row is not None and not one.command:
                stored = bytes(admin.parked_message(self._group, one).body)
                if row.body != stored:
                    admin.repair_parked(self._group, one, row.body)
        report = admin.release_parked(self._group, key=key)
        there = {
            (one.topic, one.broker_name, one.queue_id, one.offset)
            for one in admin.parked(self._group, key=key)
        }
        for place in taken.keys() - there:
            self._run(f"UPDATE {self._table} SET state = 'sent' WHERE {self._where}", place)
        return report

    def _rows(self, where: str, values: Iterable[object]) -> list[RepairRow]:
        order = "ORDER BY message_key, message_order, queue_offset"
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(
                f"SELECT {', '.join(_TYPES)} FROM {self._table} {where} {order}", tuple(values)
            )
            return [RepairRow(*row) for row in cursor.fetchall()]

    def _run(self, statement: str, values: Iterable[object]) -> int:
        """Execute and commit; the number of rows that changed."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values))
            connection.commit()
            return int(cursor.rowcount)
