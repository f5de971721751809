"""Requests about topics, not their routes: list them (206, 224, 304, 311, 312, 313), add one (217),
forget one (216).

Refuses to keep state; `RouteRegistry` does. Java: DefaultRequestProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.model.topic import OF_UNIT, SUBSCRIBED_BY_UNIT
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire.bodies import name_lists, route
from cometmq.wire.bodies.json_fields import LENIENT_BYTES_MAX
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.namesrv.route_registry import RouteRegistry
    from cometmq.net.connection import Connection
    from cometmq.runtime.time_slices import TimeSlices
    from cometmq.settings.namesrv import NamesrvSettings
    from cometmq.wire.command import Command


class TopicListRequests:
    """Answers requests about the topics of registered brokers."""

    def __init__(
        self, routes: RouteRegistry, settings: NamesrvSettings, time_slices: TimeSlices
    ) -> None:
        self._routes = routes
        self._settings = settings
        self._time_slices = time_slices
        self._kept = -1, b""
        """The list of all topics, and at which generation of the routes it was made."""

    def adjust(self, settings: NamesrvSettings) -> None:
        """Work with these settings from now on."""
        self._settings = settings

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics),
            Endpoint(RequestCode.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster),
            Endpoint(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics),
            Endpoint(RequestCode.GET_UNIT_TOPIC_LIST, self.unit_topics),
            Endpoint(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics),
            Endpoint(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.unit_sub_plain_topics),
            Endpoint(
                RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic, RequestEffect.MUTATING
            ),
            Endpoint(
                RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                self.register_topic,
                RequestEffect.MUTATING,
                body_bytes_max=LENIENT_BYTES_MAX,
            ),
        )

    async def all_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List all topics (206)."""
        if not self._settings.enable_all_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        async with self._time_slices.lock:
            generation, body = self._kept
            if generation != self._routes.generation:
                generation = self._routes.generation
                body = await self._encode(self._routes.topics())
                self._kept = generation, body
        return Reply(body=body)

    async def _encode(self, topics: Iterable[str]) -> bytes:
        """The list of these topics, sorted; an empty name only takes its turn."""
        names = await self._time_slices.collect(topics)
        texts = await self._time_slices.collect(
            name_lists.topic_list_pieces(list(filter(None, names)))
        )
        return b"".join(texts)

    async def _answer(self, topics: Iterable[str]) -> Reply:
        async with self._time_slices.lock:
            return Reply(body=await self._encode(topics))

    async def topics_of_cluster(self, request: Command, _connection: Connection) -> Reply:
        """List the topics of a cluster (224)."""
        if not self._settings.enable_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        header = headers.GetTopicsByClusterRequestHeader.decode(request.ext)
        return await self._answer(self._routes.each_topic_of(header.cluster))

    def system_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the names of clusters and brokers (304)."""
        return Reply(body=name_lists.encode_topic_list(*self._routes.system_topics()))

    async def unit_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics of units (311)."""
        return await self._topics_with(OF_UNIT)

    async def unit_sub_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics that units subscribe (312)."""
        return await self._topics_with(SUBSCRIBED_BY_UNIT)

    async def unit_sub_plain_topics(self, _request: Command, _connection: Connection) -> Reply:
        """List the topics that units subscribe and that are of no unit (313)."""
        return await self._topics_with(SUBSCRIBED_BY_UNIT, without=OF_UNIT)

    async def _topics_with(self, flags: int, *, without: int = 0) -> Reply:
        if not self._settings.enable_topic_list:
            raise Reject(ResponseCode.SYSTEM_ERROR, "disable")
        return await self._answer(self._routes.each_topic_with(flags, without=without))

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
