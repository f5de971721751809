"""Pages of a table: what tools of release 5.4 and later ask of topics (21) and groups (201).

A page begins at a place in the order of names; after a change of the table the next page begins at
the first name again. Java: TopicConfigManager.subTopicConfigTable, SubscriptionGroupManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.errors import ProtocolError
from cometmq.wire.bodies.topic import decode_data_version

if TYPE_CHECKING:
    from cometmq.model.topic import DataVersion

PAGE_MAX = 2_000
"""Entries of one page."""


@dataclass(frozen=True, slots=True)
class AskedPage:
    """What a request asks of a table."""

    start: int | None
    seen_version: str | None
    count: int | None

    @property
    def is_whole(self) -> bool:
        """Whether no page was asked for, but the whole table."""
        return self.start is None and self.seen_version is None and self.count is None

    def names(self, ordered: list[str], version: DataVersion) -> list[str]:
        """The names on the page, of all names of the table in order."""
        first = max(0, self.start or 0)
        if not self.seen_version or not _is(version, self.seen_version):
            first = 0
        room = PAGE_MAX if self.count is None else max(0, min(self.count, PAGE_MAX))
        return ordered[first : first + room]


def _is(version: DataVersion, text: str) -> bool:
    try:
        return decode_data_version(text.encode()) == version
    except ProtocolError:
        return False
