"""A table with a row a message, in the user's own database, over any DB-API driver.

Owns the statements that name the table and its columns, and their connections; knows nothing of
what the rows are for. Invariant: a message has one row, found by its place: topic, broker, queue
and offset. Java: nothing alike
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cometmq.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PLACE = {
    "topic": "VARCHAR(255)",
    "broker_name": "VARCHAR(255)",
    "queue_id": "INTEGER",
    "queue_offset": "BIGINT",
}
"""The columns that every such table begins with, its primary key."""
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class MessageTable:
    """One table. Each call makes a connection of its own, and raises what the driver raises."""

    def __init__(
        self, connect: Callable[[], Any], name: str, columns: Mapping[str, str], paramstyle: str
    ) -> None:
        """`columns` are SQL types by name, those of PLACE first; an empty one is that of bodies.

        Raises SettingsError for a bad name or paramstyle.
        """
        if not callable(connect):
            raise SettingsError(f"connect is {connect!r}; it must be a function without arguments")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingsError(f"table is {name!r}, which is no name of a table")
        mark = _MARKS.get(paramstyle) if isinstance(paramstyle, str) else None
        if mark is None:
            raise SettingsError(f"paramstyle is {paramstyle!r}; it must be {', '.join(_MARKS)}")
        self.name = name
        self.mark = mark
        """How a statement marks a value."""
        self.at_place = " AND ".join(f"{column} = {mark}" for column in PLACE)
        """The condition that finds the row of a place."""
        self._connect = connect
        self._columns = dict(columns)
        self._look = f"SELECT 1 FROM {name} WHERE {self.at_place}"
        marks = ", ".join([mark] * len(columns))
        self._insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})"

    def schema(self, body_type: str) -> str:
        """Return a CREATE TABLE statement."""
        if not isinstance(body_type, str):
            raise SettingsError(f"body_type is {body_type!r}; it must be a type of SQL, as 'BLOB'")
        columns = ", ".join(f"{name} {kind or body_type}" for name, kind in self._columns.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}, PRIMARY KEY ({', '.join(PLACE)}))"
        )

    def add(self, row: Sequence[object]) -> bool:
        """Write a row unless its place has one; whether it had none."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._look, row[: len(PLACE)])
            is_new = cursor.fetchone() is None
            if is_new:
                cursor.execute(self._insert, row)
                connection.commit()
            return is_new

    def select(self, rest: str, values: Iterable[object]) -> list[tuple[Any, ...]]:
        """All columns of the rows that the rest of the statement chooses."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(
                f"SELECT {', '.join(self._columns)} FROM {self.name} {rest}", tuple(values)
            )
            return list(cursor.fetchall())

    def update(self, rest: str, values: Iterable[object]) -> int:
        """Execute an UPDATE and commit; the number of rows that changed."""
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"UPDATE {self.name} {rest}", tuple(values))
            connection.commit()
            return int(cursor.rowcount)
