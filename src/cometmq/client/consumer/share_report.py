"""Says in the log when a member of a group gets no queue, or has threads that can do nothing.

Owns what was said, so that each state of affairs is said once. Changes nothing.
Java: none
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.model.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sized

    from cometmq.client.consumer.consumer_options import ConsumerOptions

log = logging.getLogger(__name__)


class ShareReport:
    """The shares that one member got in the last rounds. One loop owns it."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._threads = options.consume_threads
        self._shares: dict[str, int] = {}
        self._idle: dict[str, str] = {}
        self._useful_threads: int | None = None

    def look(self, topic: str, queues: Sized, members: Sized, share: Sized) -> None:
        """Note what a round of rebalance gave this member of a topic."""
        if topic.startswith(RETRY_PREFIX):
            return
        self._shares[topic] = len(share)
        why = ""
        if not share:
            why = (
                f"this member has no queue of {topic}: {len(queues)} queues for {len(members)} "
                f"members of {self._options.group}; give the topic more queues, or stop members"
            )
        if why and why != self._idle.get(topic):
            log.warning("%s", why)
        self._idle[topic] = why
        if self._options.orderly:
            self._look_at_threads(sum(self._shares.values()))

    def resize(self, threads: int) -> None:
        """Look anew with so many threads."""
        self._threads, self._useful_threads = threads, None
        if self._options.orderly and self._shares:
            self._look_at_threads(sum(self._shares.values()))

    def _look_at_threads(self, queues: int) -> None:
        threads = self._threads
        if 0 < queues < threads and queues != self._useful_threads:
            log.info(
                "consume_threads is %d and %d of them can work: in order a member runs one handler "
                'for each of its queues; order="key" runs one for each key',
                threads,
                queues,
            )
        self._useful_threads = queues
