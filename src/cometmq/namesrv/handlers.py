"""The requests of a name server: codes to what `RouteRegistry` and `KvConfig` do.

Refuses to know sockets; the dispatcher decodes commands. Invariant: when a connection goes,
so do the brokers that registered over it.
Java: DefaultRequestProcessor, ClientRequestProcessor, BrokerHousekeepingService.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.topic import ORDER_TOPIC_CONFIG
from cometmq.namesrv.route_registry import BrokerId, BrokerRegistration
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Effect, Endpoint
from cometmq.net.handler import Reply
from cometmq.wire.bodies import name_lists, route, topic
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.model.route import TopicRouteData
    from cometmq.namesrv.kv_config import KvConfig
    from cometmq.namesrv.route_registry import MinBrokerIdChange, RouteRegistry
    from cometmq.runtime.ports import Clock
    from cometmq.settings.namesrv import NamesrvSettings
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

_CRC_MASK = 0x7FFFFFFF
_UNIT, _UNIT_SUBSCRIBED = 1, 2


class Requests:
    """All handlers of one name server; they share its routes."""

    def __init__(
        self,
        routes: RouteRegistry,
        kv: KvConfig,
        settings: NamesrvSettings,
        clock: Clock,
        tell: Callable[[str, Command], None],
    ) -> None:
        """`tell` sends a command to an address and does not wait for anything."""
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._tell = tell
        routes.on_min_id = self._tell_min_id
        self._started_ms = clock.now_ms()
        self._owners: set[Connection] = set()

    def adjust(self, settings: NamesrvSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.PUT_KV_CONFIG, self.put_kv, Effect.MUTATING),
            Endpoint(RequestCode.GET_KV_CONFIG, self.get_kv),
            Endpoint(RequestCode.DELETE_KV_CONFIG, self.delete_kv, Effect.MUTATING),
            Endpoint(RequestCode.GET_KVLIST_BY_NAMESPACE, self.list_kv),
            Endpoint(RequestCode.REGISTER_BROKER, self.register, Effect.MUTATING),
            Endpoint(RequestCode.UNREGISTER_BROKER, self.unregister, Effect.MUTATING),
            Endpoint(RequestCode.BROKER_HEARTBEAT, self.heartbeat, Effect.MUTATING),
            Endpoint(RequestCode.QUERY_DATA_VERSION, self.query_version),
            Endpoint(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route),
            Endpoint(RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info),
            Endpoint(RequestCode.GET_BROKER_MEMBER_GROUP, self.members),
            Endpoint(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_perm, Effect.MUTATING),
            Endpoint(RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write_perm, Effect.MUTATING),
            Endpoint(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics),
            Endpoint(RequestCode.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster),
            Endpoint(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics),
            Endpoint(RequestCode.GET_UNIT_TOPIC_LIST, self.unit_topics),
            Endpoint(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics),
            Endpoint(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.unit_sub_plain_topics),
            Endpoint(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic, Effect.MUTATING),
            Endpoint(RequestCode.REGISTER_TOPIC_IN_NAMESRV, self.register_topic, Effect.MUTATING),
        )

    def drop_expired(self) -> None:
        """Let brokers go that gave no sign of life for too long, with their connections."""
        for live in self._routes.expired(self._clock.now_ms()):
            log.warning(
                "broker %s at %s is silent and expired", live.who.broker_name, live.who.addr
            )
            self._routes.unregister(live.who)
            if isinstance(live.owner, Connection):
                live.owner.close()

    def register(self, request: Command, connection: Connection) -> Reply:
        """Take a broker's registration (103)."""
        header = headers.RegisterBrokerRequestHeader.decode(request.ext)
        if header.body_crc32 and zlib.crc32(request.body) & _CRC_MASK != header.body_crc32:
            raise Reject(ResponseCode.SYSTEM_ERROR, "crc32 of the body does not match")
        body = topic.decode_registration(
            request.body, is_compressed=header.compressed, version=request.version
        )
        who = BrokerId(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        )
        registration = BrokerRegistration(
            who=who,
            topics=body.table.topics,
            version=body.table.version,
            timeout_ms=header.heartbeat_timeout_ms,
            ha_server_addr=header.ha_server_addr,
            has_acting_master=header.enable_acting_master,
            zone=request.ext.get("__ZONE_NAME"),
            filter_servers=body.filter_servers,
        )
        if self._routes.version_of(who.cluster, who.addr) is None:
            log.info("broker %s at %s registers %d topics", *who[1::2], len(registration.topics))
        found = self._routes.register(
            registration,
            self._clock.now_ms(),
            owner=connection,
            drop_missing=self._settings.delete_topic_with_broker_registration,
        )
        if connection not in self._owners:
            self._owners.add(connection)
            connection.on_close(self._lost)
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=found.ha_server_addr, master_addr=found.master_addr
        )
        return Reply(ResponseCode.SUCCESS, answer, self._order_topics())

    def unregister(self, request: Command, _connection: Connection) -> Reply:
        """Let a broker go that says so (104)."""
        header = headers.UnRegisterBrokerRequestHeader.decode(request.ext)
        self._routes.unregister(
            BrokerId(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        )
        return Reply()

    def heartbeat(self, request: Command, _connection: Connection) -> Reply:
        """Note a light sign of life (904)."""
        header = headers.BrokerHeartbeatRequestHeader.decode(request.ext)
        self._routes.touch(header.cluster_name, header.broker_addr, self._clock.now_ms())
        return Reply()

    def query_version(self, request: Command, _connection: Connection) -> Reply:
        """Tell a broker whether its topics are known as they are (322)."""
        header = headers.QueryDataVersionRequestHeader.decode(request.ext)
        known = self._routes.version_of(header.cluster_name, header.broker_addr)
        changed = known != topic.decode_data_version(request.body)
        if not changed:
            self._routes.touch(header.cluster_name, header.broker_addr, self._clock.now_ms())
        body = b"" if known is None else topic.encode_data_version(known)
        return Reply(
            ResponseCode.SUCCESS, headers.QueryDataVersionResponseHeader(changed=changed), body
        )

    def route(self, request: Command, _connection: Connection) -> Reply:
        """Tell where a topic lives (105), in the JSON that the asker understands."""
        header = headers.GetRouteInfoRequestHeader.decode(request.ext)
        settings = self._settings
        if settings.need_wait_for_service:
            ready_ms = self._started_ms + settings.wait_seconds_for_service * 1000
            if self._clock.now_ms() < ready_ms:
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

    def wipe_write_perm(self, request: Command, _connection: Connection) -> Reply:
        """Take a broker out of writing (205)."""
        header = headers.WipeWritePermOfBrokerRequestHeader.decode(request.ext)
        count = self._routes.wipe_write_perm(header.broker_name)
        answer = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return Reply(ResponseCode.SUCCESS, answer)

    def add_write_perm(self, request: Command, _connection: Connection) -> Reply:
        """Let a broker be written again (327)."""
        header = headers.AddWritePermOfBrokerRequestHeader.decode(request.ext)
        count = self._routes.add_write_perm(header.broker_name)
        answer = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return Reply(ResponseCode.SUCCESS, answer)

    def all_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List all topics (206)."""
        if not self._settings.enable_all_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        return Reply(body=name_lists.encode_topic_list(self._routes.topics()))

    def topics_of_cluster(self, request: Command, _connection: Connection) -> Reply:
        """List the topics of a cluster (224)."""
        if not self._settings.enable_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        header = headers.GetTopicsByClusterRequestHeader.decode(request.ext)
        return Reply(body=name_lists.encode_topic_list(self._routes.topics_of(header.cluster)))

    def system_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the names of clusters and brokers (304)."""
        return Reply(body=name_lists.encode_topic_list(*self._routes.system_topics()))

    def unit_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics of units (311)."""
        return self._topics_with(_UNIT)

    def unit_sub_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics that units subscribe (312)."""
        return self._topics_with(_UNIT_SUBSCRIBED)

    def unit_sub_plain_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics that units subscribe and that are of no unit (313)."""
        return self._topics_with(_UNIT_SUBSCRIBED, without=_UNIT)

    def _topics_with(self, flags: int, *, without: int = 0) -> Reply:
        if not self._settings.enable_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        found = self._routes.topics_with(flags, without=without)
        return Reply(body=name_lists.encode_topic_list(found))

    def register_topic(self, request: Command, _connection: Connection) -> Reply:
        """Take a topic's queues on brokers that are registered (217)."""
        header = headers.RegisterTopicRequestHeader.decode(request.ext)
        self._routes.add_topic(header.topic, route.decode_route(request.body).queue_datas)
        return Reply()

    def delete_topic(self, request: Command, _connection: Connection) -> Reply:
        """Forget a topic's route (216)."""
        header = headers.DeleteTopicFromNamesrvRequestHeader.decode(request.ext)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return Reply()

    async def put_kv(self, request: Command, _connection: Connection) -> Reply:
        """Keep a text (100)."""
        header = headers.PutKVConfigRequestHeader.decode(request.ext)
        await self._kv.put(header.namespace, header.key, header.value)
        return Reply()

    def get_kv(self, request: Command, _connection: Connection) -> Reply:
        """Tell a text (101)."""
        header = headers.GetKVConfigRequestHeader.decode(request.ext)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"no config item, namespace: {header.namespace} key: {header.key}"
            raise Reject(ResponseCode.QUERY_NOT_FOUND, remark)
        return Reply(ResponseCode.SUCCESS, headers.GetKVConfigResponseHeader(value=value))

    async def delete_kv(self, request: Command, _connection: Connection) -> Reply:
        """Forget a text (102)."""
        header = headers.DeleteKVConfigRequestHeader.decode(request.ext)
        await self._kv.delete(header.namespace, header.key)
        return Reply()

    def list_kv(self, request: Command, _connection: Connection) -> Reply:
        """Tell all texts of a namespace (219)."""
        header = headers.GetKVListByNamespaceRequestHeader.decode(request.ext)
        table = self._kv.namespace(header.namespace)
        if table is None:
            remark = f"no config item, namespace: {header.namespace}"
            raise Reject(ResponseCode.QUERY_NOT_FOUND, remark)
        return Reply(body=name_lists.encode_kv_table(table))

    def _tell_min_id(self, change: MinBrokerIdChange) -> None:
        """Tell brokers who is the first of them now (905)."""
        if not self._settings.notify_min_broker_id_changed:
            return
        header = headers.NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_id,
            broker_name=change.broker_name,
            min_broker_addr=change.min_addr,
            offline_broker_addr=change.offline_addr,
            ha_broker_addr=change.ha_addr,
        )
        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        for addr in change.told:
            self._tell(addr, new_request(code, 0, header, oneway=True))

    def _order_topics(self) -> bytes:
        if not self._settings.return_order_topic_config_to_broker:
            return b""
        table = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return b"" if table is None else name_lists.encode_kv_table(table)

    def _lost(self, connection: Connection) -> None:
        self._owners.discard(connection)
        for who in self._routes.owned_by(connection):
            log.warning("broker %s at %s is gone: its connection closed", who.broker_name, who.addr)
            self._routes.unregister(who)


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
