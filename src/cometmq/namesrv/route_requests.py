"""Requests about routes: a topic (105), all brokers (106), those of one name (901), and whether
brokers may be written (205, 327).

Refuses to keep state; `RouteRegistry` does.
Java: ClientRequestProcessor, DefaultRequestProcessor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.topic import ORDER_TOPIC_CONFIG
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire.bodies import route
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.route import TopicRouteData
    from cometmq.namesrv.kv_config import KvConfig
    from cometmq.namesrv.route_registry import RouteRegistry
    from cometmq.net.connection import Connection
    from cometmq.runtime.time_slices import TimeSlices
    from cometmq.settings.namesrv import NamesrvSettings
    from cometmq.wire.command import Command


class RouteRequests:
    """Answers requests about routes."""

    def __init__(
        self,
        routes: RouteRegistry,
        kv: KvConfig,
        settings: NamesrvSettings,
        monotonic_ms: Callable[[], int],
        time_slices: TimeSlices,
    ) -> None:
        self._time_slices = time_slices
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._started_ms = monotonic_ms()

    def adjust(self, settings: NamesrvSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def is_waiting(self) -> bool:
        """Whether it gives no routes yet, as `needWaitForService` asks."""
        settings = self._settings
        ready_ms = self._started_ms + settings.wait_seconds_for_service * 1000
        return settings.need_wait_for_service and self._monotonic_ms() < ready_ms

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route),
            Endpoint(RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info),
            Endpoint(RequestCode.GET_BROKER_MEMBER_GROUP, self.members),
            Endpoint(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_perm, RequestEffect.MUTATING
            ),
            Endpoint(
                RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write_perm, RequestEffect.MUTATING
            ),
        )

    def route(self, request: Command, _connection: Connection) -> Reply:
        """Tell where a topic lives (105), in the JSON that the asker understands."""
        header = headers.GetRouteInfoRequestHeader.decode(request.ext)
        settings = self._settings
        if settings.need_wait_for_service and self.is_waiting():
            raise Reject(ResponseCode.SYSTEM_ERROR, "name server not ready")
        found = self._routes.route(header.topic, may_act=settings.support_acting_master)
        if found is None or not found.broker_datas:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            raise Reject(ResponseCode.TOPIC_NOT_EXIST, remark)
        if settings.order_message_enable:
            conf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
            found = replace(found, order_topic_conf=conf)
        if request.ext.get("__ZONE_MODE", "").lower() == "true":
            found = _within_zone(found, request.ext.get("__ZONE_NAME", ""))
        strict = bool(header.accept_standard_json_only) or request.version >= route.STRICT_VERSION
        return Reply(ResponseCode.SUCCESS, body=route.encode_route(found, strict=strict))

    def cluster_info(self, _request: Command, _connection: Connection) -> Reply:
        """Tell all brokers and clusters (106)."""
        return Reply(body=route.encode_cluster_info(self._routes.cluster_info()))

    def members(self, request: Command, _connection: Connection) -> Reply:
        """Tell who shares a broker name (901)."""
        header = headers.GetBrokerMemberGroupRequestHeader.decode(request.ext)
        found = self._routes.members(header.cluster_name, header.broker_name)
        return Reply(body=route.encode_member_group(found))

    async def wipe_write_perm(self, request: Command, _connection: Connection) -> Reply:
        """Take a broker out of writing (205)."""
        header = headers.WipeWritePermOfBrokerRequestHeader.decode(request.ext)
        async with self._time_slices.lock:
            changed = await self._time_slices.collect(
                self._routes.wiping_write_perm(header.broker_name)
            )
        answer = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=len(changed))
        return Reply(ResponseCode.SUCCESS, answer)

    async def add_write_perm(self, request: Command, _connection: Connection) -> Reply:
        """Let a broker be written again (327)."""
        header = headers.AddWritePermOfBrokerRequestHeader.decode(request.ext)
        async with self._time_slices.lock:
            changed = await self._time_slices.collect(
                self._routes.adding_write_perm(header.broker_name)
            )
        answer = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=len(changed))
        return Reply(ResponseCode.SUCCESS, answer)


def _within_zone(found: TopicRouteData, zone: str) -> TopicRouteData:
    """Leave out brokers whose master stands in another zone, and their queues."""
    brokers = tuple(
        data
        for data in found.broker_datas
        if data.master is None or (data.zone_name or "").lower() == zone.lower()
    )
    names = {data.broker_name for data in brokers}
    queues = tuple(queue for queue in found.queue_datas if queue.broker_name in names)
    return replace(found, broker_datas=brokers, queue_datas=queues)
