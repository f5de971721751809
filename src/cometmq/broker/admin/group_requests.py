"""Consumer groups on demand: create and change (200, 225), delete (207), list (201, 352), and
forbid them to read a topic (353).

Refuses to keep state. Java: AdminBrokerProcessor (updateAndCreateSubscriptionGroup and its like).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.broker.admin.paging import AskedPage
from cometmq.broker.admin.topic_requests import LIST_BYTES_MAX, LIST_MAX
from cometmq.broker.requests.large_tables import SMALL_MAX
from cometmq.errors import Reject
from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources, header_resources
from cometmq.net.handler import Reply
from cometmq.rules.name_validation import group_name_problem
from cometmq.wire.bodies.broker import encode_group_forbidden
from cometmq.wire.bodies.group import (
    GroupTable,
    decode_group_config,
    decode_group_config_list,
    encode_group_config,
    encode_group_table,
    group_fields,
)
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable

    from cometmq.broker.groups.consumer_groups import ConsumerGroups
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.requests.large_tables import LargeTableAnswers
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


class GroupRequests:
    """Answers requests about consumer groups."""

    def __init__(
        self,
        groups: ConsumerGroups,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        large_tables: LargeTableAnswers,
    ) -> None:
        self._large_tables = large_tables
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                self.create_or_update,
                RequestEffect.MUTATING | RequestEffect.CREATING,
                resources=_group_in_body,
                body_bytes_max=LENIENT_BYTES_MAX,
            ),
            Endpoint(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                self.create_or_update_list,
                RequestEffect.MUTATING | RequestEffect.CREATING,
                resources=_groups_in_body,
                body_bytes_max=LIST_BYTES_MAX,
            ),
            Endpoint(
                Code.DELETE_SUBSCRIPTIONGROUP,
                self.delete,
                RequestEffect.MUTATING | RequestEffect.CREATING,
                resources=header_resources(groups=("groupName",)),
            ),
            Endpoint(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.list_configs),
            Endpoint(
                Code.GET_SUBSCRIPTIONGROUP_CONFIG,
                self.get_config,
                RequestEffect.MUTATING | RequestEffect.CREATING,
            ),
            Endpoint(
                Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                self.check_forbidden,
                RequestEffect.MUTATING | RequestEffect.CREATING,
            ),
        )

    def create_or_update(self, request: Command, _connection: Connection) -> Reply:
        """Create or change one group (200)."""
        return self._put([decode_group_config(request.body)])

    def create_or_update_list(self, request: Command, _connection: Connection) -> Reply:
        """Create or change several groups (225): all of them, or none when one is wrong."""
        configs = decode_group_config_list(request.body)
        if len(configs) > LIST_MAX:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"{len(configs)} groups in one request, where {LIST_MAX} may be; send several",
            )
        return self._put(configs)

    async def delete(self, request: Command, _connection: Connection) -> Reply:
        """Delete a group, with its offsets where that is asked for (207)."""
        header = DeleteSubscriptionGroupRequestHeader.decode(request.ext)
        self._groups.delete(header.group_name)
        await self._groups.writer.flushed()  # else the group stays, and its offsets with it
        if header.clean_offset:
            self._offsets.forget_group(header.group_name)
        self._stats.forget_group(header.group_name)
        return Reply()

    def list_configs(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Return all groups (201), or the page of them that was asked for."""
        header = GetAllSubscriptionGroupRequestHeader.decode(request.ext)
        groups = self._groups
        page = AskedPage(header.group_seq, header.data_version, header.max_group_num)
        if len(groups.table) > SMALL_MAX:
            return self._list_many(page)
        names = groups.table if page.is_whole else page.names(sorted(groups.table), groups.version)
        table = {name: groups.table[name] for name in names}
        body = encode_group_table(GroupTable(groups.version, table, self._forbidden(page, table)))
        return Reply(header=self._total(), body=body)

    async def _list_many(self, page: AskedPage) -> Reply:
        groups, tables, name = self._groups, self._large_tables, "subscriptionGroupTable"
        version, total = groups.version, self._total()
        names: Collection[str] = ()
        if not page.is_whole:
            ordered = await tables.sorted_names(name, version, groups.table)
            names = page.names(ordered, version)
        empty = encode_group_table(GroupTable(version, {}, self._forbidden(page, names)))
        if page.is_whole:
            body = await tables.encode(name, version, empty, groups.table, group_fields)
        else:
            body = await tables.encode_page(name, empty, names, groups.table, group_fields)
        return Reply(header=total, body=body)

    def _forbidden(self, page: AskedPage, names: Collection[str]) -> dict[str, dict[str, int]]:
        """What is forbidden to the groups on a page."""
        forbidden = self._groups.forbidden
        if page.is_whole:
            return forbidden
        return {name: forbidden[name] for name in names if name in forbidden}

    def _total(self) -> GetAllSubscriptionGroupResponseHeader:
        return GetAllSubscriptionGroupResponseHeader(total_group_num=len(self._groups.table))

    def check_forbidden(self, request: Command, _connection: Connection) -> Reply:
        """Say whether a group may read a topic, after changing it where that is asked for (353)."""
        header = UpdateGroupForbiddenRequestHeader.decode(request.ext)
        group, topic = header.group, header.topic
        if header.readable is not None:
            self._groups.forbid(group, topic, is_forbidden=not header.readable)
        is_readable = not self._groups.is_forbidden(group, topic)
        return Reply(remark="", body=encode_group_forbidden(group, topic, is_readable=is_readable))

    def get_config(self, request: Command, _connection: Connection) -> Reply:
        """Return one group (352), which this request creates where first use creates groups."""
        name = GetSubscriptionGroupConfigRequestHeader.decode(request.ext).group
        return Reply(body=encode_group_config(self._groups.admit(name)))

    def _put(self, configs: Iterable[SubscriptionGroupConfig]) -> Reply:
        wanted = list(configs)
        for config in wanted:
            if problem := group_name_problem(config.group_name):
                raise Reject(ResponseCode.INVALID_PARAMETER, problem)
            if config.attributes:
                raise Reject(
                    ResponseCode.SYSTEM_ERROR,
                    f"the attribute {next(iter(config.attributes))} of a group is not supported "
                    "by this broker",
                )
        new = {one.group_name for one in wanted if self._groups.get(one.group_name) is None}
        if new:
            self._groups.require_room(len(new))
        for config in wanted:
            before = self._groups.get(config.group_name)
            kept = before.attributes if before else {}
            self._groups.put(replace(config, attributes=kept))
        return Reply()


def _group_in_body(request: Command) -> RequestResources:
    return RequestResources(groups=(decode_group_config(request.body).group_name,))


def _groups_in_body(request: Command) -> RequestResources:
    configs = decode_group_config_list(request.body)
    return RequestResources(groups=tuple(config.group_name for config in configs))
