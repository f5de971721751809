"""Which of two masters is the newer, and up to which byte their logs are one history.

An epoch is the time in which one broker was the master, and begins with its promotion. Pure.
Java: EpochFileCache, which knows no two epochs of one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.model.replication import Epoch


def is_newer(theirs: Sequence[Epoch], mine: Sequence[Epoch]) -> bool:
    """Whether they have heard of a later promotion; of two with one number the greater id wins."""
    return _rank(theirs[-1]) > _rank(mine[-1])


def _rank(epoch: Epoch) -> tuple[int, str]:
    return epoch.number, epoch.id


def common_end(mine: Sequence[Epoch], my_end: int, theirs: Sequence[Epoch], their_end: int) -> int:
    """Up to which byte two logs that end there are the same, by their epochs."""
    at = 0
    while at < min(len(mine), len(theirs)) and mine[at] == theirs[at]:
        at += 1
    parts = [epochs[at].start for epochs in (mine, theirs) if at < len(epochs)]
    return min(my_end, their_end, *parts)


def first_unknown(mine: Sequence[Epoch], theirs: Sequence[Epoch]) -> Epoch:
    """The first of their epochs that is none of mine; there must be one."""
    known = {each.id for each in mine}
    return next(each for each in theirs if each.id not in known)


def id_to_take(mine: Sequence[Epoch], theirs: Sequence[Epoch]) -> int:
    """The brokerId that a former master takes: the one that its successor gave up.

    A successor that was a master already gave none up: then the one that this broker had before its
    own promotion, or 1.
    """
    known = {each.id for each in theirs}
    own = [each.former_broker_id for each in mine if each.id not in known]
    return next((each for each in (first_unknown(mine, theirs).former_broker_id, *own) if each), 1)


def within(epochs: Sequence[Epoch], log_end: int) -> tuple[Epoch, ...]:
    """The epochs of a master whose log ends here: a power cut may have taken where one began."""
    return tuple(each._replace(start=min(each.start, log_end)) for each in epochs)
