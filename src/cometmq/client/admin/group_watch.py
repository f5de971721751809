"""Looks at a group at two moments, for `rules/diagnosis/bottleneck`.

Asks what `cluster_survey` asks, and 202 and 208 of brokers; changes nothing. Of members that are
not ours what they report is taken for what they do: their rates are those of the last minute.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.client.admin.cluster_survey import ClusterSurvey
from cometmq.errors import ProtocolError
from cometmq.model.cluster_facts import Reachability
from cometmq.model.group_work import GroupMoment, MemberMoment, MemberWork, QueueWork
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.model.topic import is_retry_topic
from cometmq.rules import permission
from cometmq.rules.diagnosis.bottleneck import find_bottleneck
from cometmq.wire.bodies.member_work import WORK_PROPERTY, decode_work

if TYPE_CHECKING:
    from cometmq.client.session.client_options import ClientOptions
    from cometmq.model.admin_stats import ConsumerRunningInfo
    from cometmq.model.cluster_facts import ClusterFacts, GroupFacts, MemberFacts
    from cometmq.rules.diagnosis.bottleneck import Bottleneck
    from cometmq.runtime.clock_and_file_protocols import Clock

COLD_READS = "cometmqColdReads"
"""Our brokers' count of reads that waited for the disk, in what they say of themselves (28)."""


class GroupWatch:
    """Looks at one group; each look goes on from the one before. Use it on one loop."""

    def __init__(self, options: ClientOptions, clock: Clock, group: str) -> None:
        self._options = options
        self._clock = clock
        self._group = group
        self._last: GroupMoment | None = None

    async def look(self, seconds: float) -> Bottleneck:
        """What bounds the group, seen over so many seconds; the second look begins at the first.

        Raises RemotingError where no name server answers.
        """
        before = self._last or await self.moment()
        await asyncio.sleep(seconds)
        self._last = now = await self.moment(before)
        return find_bottleneck(before, now)

    async def moment(self, before: GroupMoment | None = None) -> GroupMoment:
        """The group now; the rates of other members count from `before` on."""
        survey = ClusterSurvey(
            self._options.namesrv,
            groups=[self._group],
            only_groups=True,
            timeout_s=min(3.0, self._options.call_timeout_s),
            now_ms=self._clock.now_ms,
            credentials=self._options.credentials,
            tls=self._options.tls,
        )
        facts = await survey.take()
        at_s = asyncio.get_running_loop().time()
        known = {one.client_id: one.work for one in before.members} if before else {}
        seconds = at_s - before.at_s if before else 0.0
        (group,) = facts.groups
        members = tuple(_member(one, known.get(one.client_id), seconds) for one in group.members)
        return _moment(facts, group, members, at_s)


def _moment(
    facts: ClusterFacts, group: GroupFacts, members: tuple[MemberMoment, ...], at_s: float
) -> GroupMoment:
    progress = facts.progress
    topics = {name for name in facts.routes if not is_retry_topic(name)}
    unreadable = [
        MessageQueue(name, data.broker_name, number)
        for name in sorted(topics)
        for data in facts.routes[name].queue_datas
        if not permission.is_readable(data.perm)
        for number in range(data.read_queue_nums)
    ]
    needed = {data.broker_name for name in topics for data in facts.routes[name].queue_datas}
    masters = [one for one in facts.brokers if one.broker_id == MASTER_ID]
    answering = {one.server.addr for one in facts.brokers if one.runtime}
    answering |= {one.server.addr for one in facts.name_servers}
    lost = {addr for one in members for addr in one.work.lost} - answering
    gone = "members have lost it, and no name server knows it now"
    return GroupMoment(
        group=group.group,
        at_s=at_s,
        members=members,
        ends={queue: one.broker_offset for queue, one in progress.items()},
        committed={queue: one.consumer_offset for queue, one in progress.items()},
        unreadable=tuple(unreadable),
        dead_brokers=dict.fromkeys(sorted(lost), gone)
        | {
            one.broker_name: one.server.problem
            for one in masters
            if one.broker_name in needed and one.server.reachability is not Reachability.ANSWERS
        },
        cold_reads={
            one.broker_name: float(one.runtime[COLD_READS])
            for one in masters
            if one.runtime.get(COLD_READS, "").isdecimal()
        },
    )


def _member(member: MemberFacts, before: MemberWork | None, seconds: float) -> MemberMoment:
    if member.info is None:
        return MemberMoment(client_id=member.client_id, problem=member.problem)
    try:
        text = member.info.properties.get(WORK_PROPERTY)
        if text is not None:
            work = decode_work(text)
            return MemberMoment(client_id=member.client_id, info=member.info, work=work)
    except ProtocolError:
        pass  # a member of another version: what every client reports is left
    work = reported_work(member.info, before or MemberWork(), seconds)
    return MemberMoment(client_id=member.client_id, info=member.info, work=work)


def reported_work(info: ConsumerRunningInfo, before: MemberWork, seconds: float) -> MemberWork:
    """What a member that is not ours has done by its own rates, since `before`."""
    is_orderly = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    threads = info.properties.get("PROP_THREADPOOL_CORE_SIZE", "")
    rates = info.status_table.items()
    done = sum(one.consume_ok_tps for _, one in rates)
    failed = sum(one.consume_failed_tps for _, one in rates)
    busy = sum((one.consume_ok_tps + one.consume_failed_tps) * one.consume_rt for _, one in rates)
    pulled = sum(one.pull_tps for _, one in rates)
    again = sum(one.consume_ok_tps for topic, one in rates if is_retry_topic(topic))
    return MemberWork(
        order="queue" if is_orderly else "none",
        threads=int(threads) if threads.isdecimal() and int(threads) > 0 else 20,
        calls=before.calls + (done + failed) * seconds,
        busy_s=before.busy_s + busy / 1_000 * seconds,
        done=before.done + done * seconds,
        failed=before.failed + failed * seconds,
        pulled=before.pulled + pulled * seconds,
        retried=before.retried + again * seconds,
        lock_holders={
            queue: "?"
            for queue, one in info.mq_table.items()
            if is_orderly and not one.locked and not one.dropped
        },
        queues={
            queue: QueueWork(
                position=one.commit_offset,
                cached=one.cached_msg_count,
                limited_s=_limited(one.cached_msg_count, before, queue, seconds),
            )
            for queue, one in info.mq_table.items()
            if not one.dropped
        },
    )


_JAVA_COUNT_MAX = 1_000
"""Messages of a queue above which Java's members pull no more, unless they were set otherwise."""


def _limited(
    cached: int, before: MemberWork, queue: MessageQueue, seconds: float
) -> dict[str, float]:
    known = before.queues.get(queue)
    spent_s = known.limited_s.get("count", 0.0) if known else 0.0
    return {"count": spent_s + seconds} if cached > _JAVA_COUNT_MAX else {"count": spent_s}
