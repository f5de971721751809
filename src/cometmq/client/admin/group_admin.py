"""AsyncGroupAdmin: consumer groups, their members, and how far they are.

It uses only requests that every RocketMQ broker answers. Java: DefaultMQAdminExt
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.client.admin.group_lookup import GroupLookup, checked_settings
from cometmq.client.admin.group_positions import GroupPositions, within
from cometmq.client.admin.group_watch import GroupWatch
from cometmq.client.admin.nearest_name import nearest
from cometmq.client.admin.topic_admin import AsyncTopicAdmin
from cometmq.client.offsets.broker_offsets import BrokerOffsets
from cometmq.client.session.argument_checks import (
    INT64_MAX,
    check_flag,
    check_name,
    check_texts,
    check_whole,
    checked_offsets,
    checked_queues,
)
from cometmq.client.session.client_options import check_group, check_seconds, check_type
from cometmq.errors import BrokerError, ClientError, GroupNotFound
from cometmq.model.admin_stats import QueueProgress
from cometmq.model.group import SYSTEM_GROUPS, SubscriptionGroupConfig
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import MessageModel
from cometmq.model.topic import SYSTEM_GROUP_PREFIX, retry_topic_of
from cometmq.wire.bodies.admin import decode_consume_stats
from cometmq.wire.bodies.lock import LockRequest, encode_lock_request
from cometmq.wire.bodies.offset import decode_stored_offsets
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request
from cometmq.wire.headers.admin import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Unpack

    from cometmq.client.admin.group_lookup import GroupSettings
    from cometmq.model.admin_stats import ConsumerRunningInfo, TopicOffset
    from cometmq.model.group_status import GroupMembers, OffsetMove, QueueLag
    from cometmq.rules.diagnosis.bottleneck import Bottleneck
    from cometmq.wire.command import Command
    from cometmq.wire.headers.base import Header


class AsyncGroupAdmin(AsyncTopicAdmin):
    """The part of an admin that is about consumer groups."""

    async def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The offset a group has committed in each queue; None where it has none."""
        check_group(group)
        queues = await self.queues(topic)
        offsets = BrokerOffsets(self._running())
        found = await asyncio.gather(*(offsets.committed(group, queue) for queue in queues))
        return dict(zip(queues, found, strict=True))

    async def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, QueueProgress]:
        """The progress of a group in each queue; without a commit it counts as being at the start.

        The lag of a queue is its `broker_offset - consumer_offset`.
        """
        check_group(group)
        bounds, offsets = await asyncio.gather(
            self.topic_stats(topic), self.group_offsets(group, topic)
        )
        return {
            queue: QueueProgress(
                broker_offset=bound.max_offset,
                consumer_offset=bound.min_offset if (at := offsets.get(queue)) is None else at,
            )
            for queue, bound in bounds.items()
        }

    async def groups(self) -> list[str]:
        """The names of all consumer groups at all masters, sorted, without the system's own."""
        tables = await (await self._lookup()).tables()
        found = {name for table in tables.values() for name in table.groups}
        return sorted(name for name in found if not _is_systems(name))

    async def group_progress(self, group: str) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in every topic in which it has committed, its retry topic included.

        A queue without a commit counts as read up to offset 0.
        """
        check_group(group)
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        answers = await self._ask_all(RequestCode.GET_CONSUME_STATS, header)
        found: dict[MessageQueue, QueueProgress] = {}
        for answer in answers.values():
            found |= decode_consume_stats(answer.body).offset_table
        return dict(sorted(found.items()))

    async def set_group_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group. Its members, if any are running, will commit their own."""
        check_group(group)
        wanted, session = checked_offsets("offsets", offsets), self._running()
        for topic in {queue.topic for queue in wanted}:
            await session.routes.subscribe_queues(topic)  # where its brokers are
        brokers = BrokerOffsets(session)
        await asyncio.gather(*(brokers.commit(group, queue, at) for queue, at in wanted.items()))

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """A group as each master has it, by broker name. Raises GroupNotFound.

        Unlike request 352 it makes no group.
        """
        check_group(group)
        tables = await (await self._lookup()).tables()
        found = {
            broker: table.groups[group] for broker, table in tables.items() if group in table.groups
        }
        if not found:
            known = {name for table in tables.values() for name in table.groups}
            raise GroupNotFound(f"no broker knows the group {group}{nearest(group, known)}")
        return found

    async def create_group(self, group: str, **settings: Unpack[GroupSettings]) -> None:
        """Create a group on all masters. Raises ClientError where one has it, and changes nothing.

        The settings are fields of SubscriptionGroupConfig; `alter_group` changes them.
        """
        check_group(group)
        made = replace(SubscriptionGroupConfig(group_name=group), **checked_settings(settings))
        lookup = await self._lookup()
        tables = await lookup.tables()
        if having := [broker for broker, table in tables.items() if group in table.groups]:
            raise ClientError(
                f"the group {group} exists on {', '.join(having)}; change it with alter_group "
                f"(cometmq group alter {group})"
            )
        await lookup.put(dict.fromkeys(tables, made))

    async def alter_group(self, group: str, **settings: Unpack[GroupSettings]) -> None:
        """Change settings of a group where it is; the others stay. Raises GroupNotFound."""
        check_group(group)
        changed = checked_settings(settings)
        if not changed:
            raise ClientError(f"nothing of the group {group} is to be changed")
        found = await self.group_config(group)
        await (await self._lookup()).put(
            {name: replace(one, **changed) for name, one in found.items()}
        )

    async def delete_group(self, group: str, *, keep_offsets: bool = False) -> list[str]:
        """Delete a group; return the brokers that had it, sorted.

        Its offsets go, too, unless `keep_offsets`; its retry topic and its dead letters stay.
        Raises GroupNotFound, and ClientError while it has members, which would make it anew.
        """
        check_flag("keep_offsets", keep_offsets)
        found = await self.group_config(group)
        members = (await (await self._lookup()).connections(group)).connections
        if members:
            raise ClientError(
                f"the group {group} has {len(members)} members, which would make it anew: stop "
                f"them first ({', '.join(sorted(members)[:3])})"
            )
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=not keep_offsets
        )
        await self._ask_all(RequestCode.DELETE_SUBSCRIPTIONGROUP, header, brokers=found)
        return sorted(found)

    async def group_members(self, group: str, *, running: bool = True) -> GroupMembers:
        """The connected members of a group, with their queues. Raises GroupNotFound.

        With `running` each is asked what it does, by way of its broker; else `info` is None.
        """
        check_flag("running", running)
        check_group(group)
        found = await (await self._lookup()).members(group, running=running)
        if not found.members:
            await self.group_config(group)
        return found

    async def member_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What one member reports of itself; with `stacks` Java's members add their threads.

        Raises ClientError for a client that is no member.
        """
        check_type("client_id", client_id, str, "a text")
        check_flag("stacks", stacks)
        await self.group_config(group)
        lookup = await self._lookup()
        found = await lookup.connections(group)
        if client_id not in found.connections:
            near = nearest(client_id, found.connections)
            raise ClientError(f"{client_id} is no connected member of the group {group}{near}")
        addr = found.brokers[client_id]
        return await lookup.running_info(group, client_id, addr, stacks=stacks)

    async def group_lag(
        self, group: str, topic: str | None = None, *, owners: bool = True
    ) -> list[QueueLag]:
        """How far a group is behind in each queue of its topics, or of one, in order.

        Its topics are those in which it has committed and those that its members subscribe. With
        `owners` the members are asked which queues they have. Raises GroupNotFound, RouteNotFound.
        """
        check_flag("owners", owners)
        check_group(group)
        if topic is not None:
            await self.topic_route(topic)
        progress, lookup = await self.group_progress(group), await self._lookup()
        members = await lookup.members(group, running=owners)
        if not progress and not members.members:  # the table of all groups is long
            await self.group_config(group)
        topics = {queue.topic for queue in progress} | set(members.subscriptions)
        bounds: dict[MessageQueue, TopicOffset] = {}
        for name in sorted(topics) if topic is None else [topic]:
            if await self._running().routes.subscribe_queues(name):
                bounds |= await self.topic_stats(name)
        return await GroupPositions(self._running(), group).lags(bounds, progress, members)

    async def why(self, group: str, seconds: float = 5.0) -> Bottleneck:
        """Why a group is not faster, seen over so many seconds, and what would help.

        Its brokers and members are asked twice; nothing is changed. Members that are not ours say
        less, so less is found. Raises GroupNotFound for a group that no broker knows.
        """
        check_group(group)
        check_seconds("seconds", seconds)
        session = self._running()
        found = await GroupWatch(session.options, session.clock, group).look(seconds)
        if found.cause.name == "no member":
            await self.group_config(group)
        return found

    async def reset_group(
        self,
        group: str,
        topic: str | None,
        to: str | int,
        *,
        at_ms: bool = False,
        dry_run: bool = False,
    ) -> list[OffsetMove]:
        """Move a group in all queues of a topic; return where it was and where it goes on.

        Without a topic it is moved in all topics where it has been, its retry topic excepted.

        `to` is "earliest", "latest", or an offset, which is brought within each queue's own; with
        `at_ms` it is a time, ms since 1970: the first message stored then or later. With `dry_run`
        nothing changes. Running members go there with their next pull; messages that they are
        handling then end as they do. Raises GroupNotFound, RouteNotFound, BrokerError, and
        ClientError for a group that has been nowhere.
        """
        check_flag("dry_run", dry_run)
        check_flag("at_ms", at_ms)
        if topic is not None:
            check_name(topic)
        is_offset = to not in ("earliest", "latest")
        if at_ms or is_offset:
            check_whole("to", to, 0, INT64_MAX)
        await self.group_config(group)
        bounds: dict[MessageQueue, TopicOffset] = {}
        for name in [topic] if topic is not None else await self._topics_of(group):
            bounds |= await self.topic_stats(name)
        if at_ms:
            positions = GroupPositions(self._running(), group)
            targets = await positions.at_time(bounds, int(to))
        elif is_offset:
            targets = {queue: within(int(to), bound) for queue, bound in bounds.items()}
        else:
            is_first = to == "earliest"
            targets = {
                q: one.min_offset if is_first else one.max_offset for q, one in bounds.items()
            }
        return await self._move(group, targets, dry_run=dry_run)

    async def _topics_of(self, group: str) -> list[str]:
        """The topics where a group has been, its retry topic excepted."""
        known = {queue.topic for queue in await self.group_progress(group)}
        found = sorted(known - {retry_topic_of(group)})
        if not found:
            raise ClientError(f"the group {group} has no offset in any topic: name a topic")
        return found

    async def clone_group(self, source: str, target: str, topic: str | None = None) -> None:
        """Let a group be where another one is, in one topic or in all; made where it is missing.

        Raises GroupNotFound for an unknown source, ClientError while the target has members.
        """
        check_group(target)
        if topic is not None:
            check_name(topic)
        found = await self.group_config(source)
        if topic is not None:
            await self.topic_route(topic)
        if (await (await self._lookup()).connections(target)).connections:
            raise ClientError(f"the group {target} has members, which keep their own offsets")
        tables = await (await self._lookup()).tables()
        missing = {
            broker: replace(config, group_name=target)
            for broker, config in found.items()
            if target not in tables[broker].groups
        }
        await (await self._lookup()).put(missing)
        # Apache's broker clones nothing where the request names no topic
        known = {queue.topic for queue in await self.group_progress(source)}
        for name in [topic] if topic else sorted(known - {retry_topic_of(source)}):
            header = CloneGroupOffsetRequestHeader(
                src_group=source, dest_group=target, topic=name, offline=True
            )
            await self._ask_all(RequestCode.CLONE_GROUP_OFFSET, header, brokers=found)

    async def unlock_queues(
        self, group: str, client_id: str, queues: Collection[MessageQueue]
    ) -> None:
        """Give up the locks that a member of an orderly group holds, so that others may lock.

        For a member that is gone, or for a test: one that runs goes on until it renews its locks,
        so two members may handle a queue at once. Brokers ignore locks that the member has not.
        Raises RemotingError, BrokerError.
        """
        check_group(group)
        check_type("client_id", client_id, str, "a text")
        queues = checked_queues("queues", queues)
        session, by_broker = self._running(), defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        for topic in {queue.topic for queue in queues}:
            await session.routes.subscribe_queues(topic)
        for broker_name, its in by_broker.items():
            body = encode_lock_request(LockRequest(group, client_id, tuple(its)))
            await session.call_checked(
                session.routes.master_addr(broker_name),
                request(RequestCode.UNLOCK_BATCH_MQ, 0, body=body),
            )

    async def committed_offsets(
        self, groups: Sequence[str] = ()
    ) -> dict[str, dict[MessageQueue, int]]:
        """The committed offsets of all groups, or of those named, by group, in order.

        Raises GroupNotFound for a named group that no broker knows and that has no offset.
        """
        check_texts("groups", groups)
        found: dict[str, dict[MessageQueue, int]] = {}
        answers = await self._ask_all(RequestCode.GET_ALL_CONSUMER_OFFSET)
        for broker, answer in answers.items():
            for place, offsets in decode_stored_offsets(answer.body).offsets.items():
                topic, _, group = place.partition("@")
                if group and (not groups or group in groups):
                    table = found.setdefault(group, {})
                    table |= {MessageQueue(topic, broker, at): each for at, each in offsets.items()}
        for group in groups:
            if group not in found:
                await self.group_config(group)
        return {group: dict(sorted(found[group].items())) for group in sorted(found)}

    async def restore_offsets(
        self,
        offsets: Mapping[str, Mapping[MessageQueue, int]],
        *,
        dry_run: bool = False,
    ) -> dict[str, list[OffsetMove]]:
        """Move groups to the offsets given, each brought within its queue; missing groups are made.

        Returns where each was and where it goes on; queues that are not there are left out. With
        `dry_run` nothing changes.
        """
        check_flag("dry_run", dry_run)
        if not isinstance(offsets, Mapping):
            raise ClientError(f"offsets must be a dict of groups and offsets, not {offsets!r:.80}")
        for group, table in offsets.items():
            check_group(group)
            checked_offsets("offsets", table)
        lookup = await self._lookup()
        tables = await lookup.tables()
        moved: dict[str, list[OffsetMove]] = {}
        for group, table in offsets.items():
            wanted = dict(table)
            bounds: dict[MessageQueue, TopicOffset] = {}
            for topic in {queue.topic for queue in wanted}:
                if await self._running().name_servers.route(topic) is not None:
                    bounds |= await self.topic_stats(topic)
            targets = {q: within(at, bounds[q]) for q, at in wanted.items() if q in bounds}
            if not dry_run:
                made = SubscriptionGroupConfig(group_name=group)
                brokers = {queue.broker_name for queue in targets}
                await lookup.put(
                    {name: made for name in brokers if group not in tables[name].groups}
                )
            moved[group] = await self._move(group, targets, dry_run=dry_run)
        return moved

    async def _move(
        self, group: str, targets: Mapping[MessageQueue, int], *, dry_run: bool
    ) -> list[OffsetMove]:
        members = await (await self._lookup()).members(group, running=False)
        if members.members and members.message_model is MessageModel.BROADCASTING:
            raise ClientError(
                f"the group {group} broadcasts: each member keeps its own offsets, which no broker "
                "can move"
            )
        positions = GroupPositions(self._running(), group)
        moves = await positions.planned(targets)
        if not dry_run:
            await positions.move(moves, has_members=bool(members.members))
        return moves

    async def _lookup(self) -> GroupLookup:
        return GroupLookup(self._running(), await self._changes().masters(()))

    async def _ask_all(
        self, code: RequestCode, header: Header | None = None, *, brokers: Collection[str] = ()
    ) -> dict[str, Command]:
        """The response of each master, or of those named; raises BrokerError for a refusal."""
        found = await self._ask_masters(code, header, brokers=brokers)
        for broker, answer in found.items():
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark, broker)
        return found


def _is_systems(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
