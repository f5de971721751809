"""Pages of a table: what tools of release 5.4 and later ask of topics (21) and groups (201).

A page begins at a place in the order of names; after a change of the table the next page begins at
the first name again. Java: TopicConfigManager.subTopicConfigTable, SubscriptionGroupManager.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from cometmq.errors import ProtocolError
from cometmq.wire.bodies.topic import decode_data_version

if TYPE_CHECKING:
    from cometmq.model.topic import DataVersion

PAGE_MAX = 2_000
"""Entries of one page."""

_V = TypeVar("_V")


def page_of(
    table: dict[str, _V],
    version: DataVersion,
    start: int | None,
    seen_version: str | None,
    count: int | None,
) -> dict[str, _V]:
    """Return the page that was asked for, or the whole table where none was."""
    if start is None and seen_version is None and count is None:
        return table
    first = max(0, start or 0)
    if not seen_version or not _is(version, seen_version):
        first = 0
    room = PAGE_MAX if count is None else max(0, min(count, PAGE_MAX))
    return {name: table[name] for name in islice(sorted(table), first, first + room)}


def _is(version: DataVersion, text: str) -> bool:
    try:
        return decode_data_version(text.encode()) == version
    except ProtocolError:
        return False
