"""Parked messages as rows of the user's own table: to be looked at, repaired and sent back.

Owns the columns and who has a row; leaves to the group's parking topic what
counts. Invariant: a row is taken by one operator; a repaired body is written to the parking topic
before its key is released. Java: nothing alike
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.client.failures.message_table import PLACE, MessageTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.client.blocking.admin import Admin
    from cometmq.model.parking import RedriveReport

_COLUMNS = {
    **PLACE,
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
        self._table = MessageTable(connect, table, _COLUMNS, paramstyle)
        self._group = group

    def schema(self, body_type: str = "BLOB") -> str:
        """Return a CREATE TABLE statement; PostgreSQL's `body_type` is BYTEA."""
        return self._table.schema(body_type)

    def fill(self, admin: Admin) -> int:
        """Add the parked messages that have no row yet; how many."""
        added = 0
        for one in admin.parked(self._group):
            place = (one.topic, one.broker_name, one.queue_id, one.offset)
            if self._rows(self._table.at_place, place):
                continue
            body = bytes(admin.parked_message(self._group, one).body)
            facts = (one.key, one.order, one.msg_id, body, one.reason, one.attempts, one.parked_ms)
            added += self._table.add((*place, *facts, "new", None))
        return added

    def rows(self, state: str | None = None) -> list[RepairRow]:
        """The rows, or those in a state, those of a key in their order."""
        if state is None:
            return self._rows("1 = 1", ())
        return self._rows(f"state = {self._table.mark}", (state,))

    def take(self, key: str, operator: str) -> list[RepairRow]:
        """Mark the new rows of a key as one operator's; those that are his, oldest first.

        Of two who ask at the same time, one gets each row.
        """
        mark = self._table.mark
        self._table.update(
            f"SET state = 'taken', operator = {mark} WHERE message_key = {mark} AND state = 'new'",
            (operator, key),
        )
        where = f"message_key = {mark} AND operator = {mark} AND state = 'taken'"
        return self._rows(where, (key, operator))

    def repair(self, row: RepairRow, body: bytes) -> bool:
        """Give a row that its operator has taken another body; whether it was his still."""
        table = self._table
        return bool(
            table.update(
                f"SET body = {table.mark} WHERE {table.at_place} "
                f"AND state = 'taken' AND operator = {table.mark}",
                (body, *row[: len(PLACE)], row.operator),
            )
        )

    def send_back(self, admin: Admin, key: str, operator: str) -> RedriveReport:
        """Release a key, with the bodies of the rows that an operator has taken.

        Called again, by anybody, it does nothing twice: what has left is no longer parked. Rows of
        messages that have left are "sent" then.
        """
        taken = {row[: len(PLACE)]: row for row in self.take(key, operator)}
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
            self._table.update(f"SET state = 'sent' WHERE {self._table.at_place}", place)
        return report

    def _rows(self, condition: str, values: Iterable[object]) -> list[RepairRow]:
        order = "ORDER BY message_key, message_order, queue_offset"
        return [RepairRow(*row) for row in self._table.select(f"WHERE {condition} {order}", values)]
