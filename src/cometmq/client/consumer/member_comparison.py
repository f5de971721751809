"""Compares this member with the next one of its group by client id, which it asks through a broker.

Where any two members differ, two that follow each other do, so one question for each new successor
is enough. Every broker passes the question on, Apache's too. Owns who was asked; changes nothing.
Java: none; mqadmin consumerStatus compares the members when an operator asks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.errors import CometError
from cometmq.rules.group_members import (
    WHY,
    MemberSettings,
    difference,
    filters_of,
    settings_in_running_info,
)
from cometmq.wire.bodies.admin import decode_running_info
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import GetConsumerRunningInfoRequestHeader

if TYPE_CHECKING:
    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.session.client_session import ClientSession

log = logging.getLogger(__name__)

_TRIES = 3
"""Questions to a member that get no answer."""
_ASKED_MAX = 1_000
"""Members remembered; beyond it all are forgotten, and may be reported again."""


class MemberComparison:
    """One member's comparison with the next one of its group. One loop owns it."""

    def __init__(
        self, session: ClientSession, options: ConsumerOptions, subscriptions: Subscriptions
    ) -> None:
        self._session = session
        self._options = options
        self._subscriptions = subscriptions
        self._asked: dict[str, int] = {}

    def look(self, addr: str, members: list[str]) -> None:
        """Compare this member with the next one, in the background, unless that was done."""
        own = self._session.client_id
        ring = sorted({*members, own})
        successor = ring[(ring.index(own) + 1) % len(ring)]
        tries = self._asked.get(successor, 0)
        if successor == own or tries >= _TRIES:
            return
        if len(self._asked) >= _ASKED_MAX:
            self._asked.clear()
        self._asked[successor] = _TRIES  # while the question is under way, and once it is answered
        work = self._compare(addr, successor, tries + 1)
        self._session.background.spawn(work, name="compare members")

    async def _compare(self, addr: str, successor: str, tries: int) -> None:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=self._options.group, client_id=successor
        )
        command = request(RequestCode.GET_CONSUMER_RUNNING_INFO, 0, header)
        try:
            answer = await self._session.call_checked(addr, command)
            info = decode_running_info(answer.body)
        except CometError as error:  # it is just starting, or its client knows no such question
            log.debug("%s did not say what it wants: %s", successor, error)
            self._asked[successor] = tries
            return
        if not info.subscriptions:
            return
        own = MemberSettings(
            filters_of(self._subscriptions.data()), is_orderly=self._options.is_locking
        )
        theirs = settings_in_running_info(info)
        if found := difference(self._session.client_id, own, successor, theirs):
            log.warning(
                "two members of the group %s differ: %s: %s", self._options.group, found, WHY
            )
