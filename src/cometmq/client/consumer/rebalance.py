"""Rounds of rebalance: which queues of the group are ours, asked for and computed.

Owns when a round takes place and what it asks; `queue_assignment` takes queues and gives them away.
Invariants: what cannot be asked for leaves the assignment as it is; rounds never overlap.
Java: RebalanceImpl.rebalanceByTopic, RebalanceService
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.consumer.member_comparison import MemberComparison
from cometmq.client.consumer.share_report import ShareReport
from cometmq.errors import CometError
from cometmq.rules.allocate import share_of
from cometmq.wire.bodies.name_lists import decode_consumer_list
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.headers.client import GetConsumerListByGroupRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.client.consumer.consumer_options import ConsumerOptions
    from cometmq.client.consumer.queue_assignment import QueueAssignment
    from cometmq.client.consumer.repeated_problem_log import ProblemLog
    from cometmq.client.consumer.subscriptions import Subscriptions
    from cometmq.client.session.client_session import ClientSession
    from cometmq.model.queue import MessageQueue

_UNBALANCED_S = (0.1, 0.5)
"""Pause after a round that left queues out, those locked by others for instance: at first, and
after `_QUICK_ROUNDS` of them."""
_QUICK_ROUNDS = 10


class Rebalance:
    """The rounds of one member of a group. One loop owns it."""

    def __init__(
        self,
        session: ClientSession,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        assignment: QueueAssignment,
        problems: ProblemLog,
    ) -> None:
        self._session = session
        self._options = options
        self._subscriptions = subscriptions
        self._assignment = assignment
        self._problems = problems
        self._member_comparison = MemberComparison(session, options, subscriptions)
        self._share_report = ShareReport(options)
        self._not_before = 0.0

    def wake(self) -> None:
        """Rebalance soon: something about the group has changed."""
        self._assignment.round_needed.set()

    def rejoin(self, grace_s: float) -> None:
        """Have a round after a pause: a broker came back, and its members are still coming.

        A round at once would see only those who were faster and share their queues out again.
        """
        self._not_before = asyncio.get_running_loop().time() + grace_s
        self.wake()

    async def run(self) -> None:
        """Rebalance for ever: when woken, and every `rebalance_s`."""
        unbalanced = 1
        while True:
            await self._wait(self._pause_s(unbalanced))
            unbalanced = 0 if await self._round() else unbalanced + 1

    def _pause_s(self, unbalanced: int) -> float:
        """The pause after so many rounds in a row that left queues out."""
        if not unbalanced:
            return self._options.rebalance_s
        return _UNBALANCED_S[unbalanced > _QUICK_ROUNDS]

    async def _wait(self, pause_s: float) -> None:
        loop, round_needed = asyncio.get_running_loop(), self._assignment.round_needed
        try:
            async with asyncio.timeout(pause_s):
                await round_needed.wait()
        except TimeoutError:
            pass
        round_needed.clear()
        while self._assignment.table and (left_s := self._not_before - loop.time()) > 0:
            await asyncio.sleep(left_s)

    async def _round(self) -> bool:
        """Rebalance all topics; False when queues are missing and it must be done again soon."""
        is_balanced = True
        for topic in self._subscriptions.topics:
            try:
                is_balanced &= await self._rebalance_topic(topic)
            except CometError as error:
                is_balanced = False
                self._problems.report(str(error))
        if is_balanced:
            self._problems.clear()
        return is_balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        queues = await self._session.routes.subscribe_queues(topic)
        if not queues:
            self._problems.report(await self._why_no_queue(topic))
            self._session.routes.mark_stale(topic)
            return False
        if self._options.broadcasting:
            return await self._assignment.assign(topic, queues)
        members = await self._members(queues)
        if members is None:
            return False
        try:
            share = share_of(self._options.allocate, self._session.client_id, queues, members)
        except Exception as error:  # noqa: BLE001 - a function of the user's
            self._problems.report(
                f"the allocate function raised {error!r} for {topic}: the queues of this member "
                "stay as they are"
            )
            return False
        self._share_report.look(topic, queues, members, share)
        return await self._assignment.assign(topic, share)

    def resize(self, threads: int) -> None:
        """Say again which threads can work, now that there are so many."""
        self._share_report.resize(threads)

    async def _why_no_queue(self, topic: str) -> str:
        known = self._session.routes.cached.get(topic)
        if known is not None and known.route.queue_datas:
            brokers = ", ".join(sorted(each.broker_name for each in known.route.queue_datas))
            return (
                f"the topic {topic} may not be read: it has no queue with permission to read on "
                f"{brokers}; change it with: cometmq topic alter {topic} --perm rw"
            )
        unknown = f"no name server knows the topic {topic} yet"
        return await self._session.name_servers.why_unknown(unknown)

    async def _members(self, queues: Iterable[MessageQueue]) -> list[str] | None:
        """The members of the group; None when no broker knows them, or none knows us yet."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._options.group)
        for broker_name in sorted({queue.broker_name for queue in queues}):
            command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 0, header)
            try:
                addr = self._session.routes.read_addr(broker_name, 0)
                response = await self._session.call_checked(addr, command)
                members = decode_consumer_list(response.body)
            except CometError as error:
                self._problems.report(
                    f"broker {broker_name} does not tell the group's members: {error}"
                )
                continue
            # a connection may have come back while we waited for the response
            if self._assignment.table and asyncio.get_running_loop().time() < self._not_before:
                return None
            if self._session.client_id in members:
                self._member_comparison.look(addr, members)
                return members
            await self._session.heartbeat()
        return None
