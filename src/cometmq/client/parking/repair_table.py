"""Parked messages or dead letters as rows of the user's own table: looked at, repaired, sent back.

Owns the columns and who has a row; leaves to the group's parking topic what counts. Invariant: a
row is taken by one operator; a repaired body is written to the parking topic before its key is
released, and a dead letter is sent by the operator that has taken it alone.
Java: nothing alike
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.client.failures.message_table import PLACE, MessageTable
from cometmq.client.parking.parking_messages import letter_facts
from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cometmq.client.blocking.admin import Admin
    from cometmq.model.parking import ParkedMessage, RedriveReport

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
_KINDS = ("parked", "dead_letters")
Place = tuple[str, str, int, int]


class RepairRow(NamedTuple):
    """A row: where the message lies, its key, body and state ("new", "taken", "sent").

    That is its own queue if it is parked, and the dead-letter topic for a dead letter. The key is
    the sharding key; for a dead letter without one the id that the message had.
    """

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

    @property
    def place(self) -> Place:
        """Topic, broker, queue id and offset: no two rows have the same."""
        return self.topic, self.broker_name, self.queue_id, self.queue_offset


class RepairTable:
    """The parked messages of one group, or its dead letters, as rows of a table.

    `connect` returns a new DB-API connection; `of` is "parked" or "dead_letters"; `paramstyle` is
    that of the driver: "qmark" (SQLite), "format" or "pyformat". Raises SettingsError for a bad
    name, kind or paramstyle; calls raise what the driver and the admin raise, and may be made again
    then.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        group: str,
        *,
        of: str = "parked",
        paramstyle: str = "qmark",
    ) -> None:
        if of not in _KINDS:
            raise SettingsError(f"of is {of!r}; it must be one of {', '.join(_KINDS)}")
        self._is_of_letters = of == "dead_letters"
        self._table = MessageTable(connect, table, _COLUMNS, paramstyle)
        self._group = group

    def schema(self, body_type: str = "BLOB") -> str:
        """Return a CREATE TABLE statement; PostgreSQL's `body_type` is BYTEA."""
        return self._table.schema(body_type)

    def fill(self, admin: Admin) -> int:
        """Add the messages that have no row yet, and are not done; how many."""
        if self._is_of_letters:
            letters = admin.open_dead_letters(self._group)
            known = [(letter_facts(one), one.body) for one in letters]
            return sum(self._add(one, body) for one, body in known if not self._has(one))
        return sum(
            self._add(one, bytes(admin.parked_message(self._group, one).body))
            for one in admin.parked(self._group)
            if not self._has(one)
        )

    def _has(self, one: ParkedMessage) -> bool:
        return bool(self._rows(self._table.at_place, _place(one)))

    def _add(self, one: ParkedMessage, body: bytes) -> bool:
        facts = (one.key or one.msg_id, one.order, one.msg_id, body, one.reason, one.attempts)
        return self._table.add((*_place(one), *facts, one.parked_ms, "new", None))

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
                (body, *row.place, row.operator),
            )
        )

    def send_back(self, admin: Admin, key: str, operator: str) -> RedriveReport:
        """Send the messages of a key back to this group alone, with the bodies of its taken rows.

        A parked key is released as a whole; of dead letters those are sent that he has taken.
        Called again, by anybody, it does nothing twice: what has left is done. Rows of messages
        that have left are "sent" then.
        """
        taken = {row.place: row for row in self.take(key, operator)}
        if self._is_of_letters:
            report = admin.redrive_dead_letters(
                self._group,
                to_group=True,
                repaired={place[1:]: row.body for place, row in taken.items()},
            )
            there = {_place(letter_facts(one)) for one in admin.open_dead_letters(self._group)}
        else:
            report = self._release(admin, key, taken)
            there = {_place(one) for one in admin.parked(self._group, key=key)}
        for place in taken.keys() - there:
            self._table.update(f"SET state = 'sent' WHERE {self._table.at_place}", place)
        return report

    def _release(self, admin: Admin, key: str, taken: dict[Place, RepairRow]) -> RedriveReport:
        for one in admin.parked(self._group, key=key):
            row = taken.get(_place(one))
            if row is not None and not one.command:
                stored = bytes(admin.parked_message(self._group, one).body)
                if row.body != stored:
                    admin.repair_parked(self._group, one, row.body)
        return admin.release_parked(self._group, key=key)

    def _rows(self, condition: str, values: Iterable[object]) -> list[RepairRow]:
        order = "ORDER BY message_key, message_order, queue_offset"
        return [RepairRow(*row) for row in self._table.select(f"WHERE {condition} {order}", values)]


def _place(one: ParkedMessage) -> Place:
    return one.topic, one.broker_name, one.queue_id, one.offset
