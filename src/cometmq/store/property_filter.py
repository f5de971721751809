"""The filter that a reader gives the store, on a message's raw properties.

Java: MessageFilter.isMatchedByCommitLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class FilterNotReady(Exception):
    """A filter cannot judge a message yet: a read ends before it, or raises this if it is first."""


class PropertyFilter(NamedTuple):
    """Says by a message's raw properties whether a reader wants it; may raise FilterNotReady.

    `scan_max` bounds how many messages one read asks about. With `may_stop` a read ends before the
    first message that is not in memory, if it has asked about one at least.
    """

    accepts: Callable[[bytes], bool]
    scan_max: int
    may_stop: bool = False
