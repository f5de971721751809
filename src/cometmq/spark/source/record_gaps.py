"""Finds offsets that are missing between the records of answers, or behind the last of an answer.

What is missing before the first one is seen where answers are taken (`pull`). Pure, in vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cometmq.model.queue import MessageQueue

    Ints = NDArray[np.int64]


def missing_offsets(
    queues: Sequence[MessageQueue], nexts: Sequence[int], answer_of: Ints, offsets: Ints
) -> dict[MessageQueue, list[range]]:
    """By queue, the ranges of offsets that are missing, in the order of the records.

    `queues` and `nexts` say of each answer whose it is and where the next one goes on;
    `answer_of` says of each record which answer brought it, and `offsets` which offset it has.
    """
    goes_on = np.array(nexts, np.int64)[answer_of]
    goes_on[:-1] = np.where(answer_of[1:] == answer_of[:-1], offsets[1:], goes_on[:-1])
    found: dict[MessageQueue, list[range]] = {}
    for row in np.flatnonzero(goes_on > offsets + 1).tolist():
        gap = range(int(offsets[row]) + 1, int(goes_on[row]))
        found.setdefault(queues[int(answer_of[row])], []).append(gap)
    return found
