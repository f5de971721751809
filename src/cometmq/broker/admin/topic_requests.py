"""Topics on demand: create and change (17, 18), delete (215, 316), list (21, 305, 351).

Owns the checks of a topic's name, shape and attributes. Refuses to keep state.
Java: AdminBrokerProcessor (updateAndCreateTopic and its like), TopicAttributes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.admin import topic_attributes as attributes
from cometmq.broker.admin.paging import AskedPage
from cometmq.broker.cluster.table_writer import not_written
from cometmq.broker.requests.large_tables import SMALL_MAX
from cometmq.errors import Reject
from cometmq.model.topic import QUEUES_MAX, TopicConfig, is_in_global_order
from cometmq.net.endpoint import Endpoint, RequestEffect, RequestResources
from cometmq.net.handler import Reply
from cometmq.rules.name_validation import topic_name_problem
from cometmq.wire.bodies.name_lists import encode_topic_list
from cometmq.wire.bodies.topic import (
    TopicTable,
    decode_topic_config_list,
    encode_topic_config,
    encode_topic_table,
    topic_fields,
)
from cometmq.wire.codes import RequestCode as Code
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.admin import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cometmq.broker.cluster.global_order_check import ForeignTopic, GlobalOrderCheck
    from cometmq.broker.cluster.registration import NamesrvRegistration
    from cometmq.broker.cluster.topics import Topics
    from cometmq.broker.groups.consumer_offsets import ConsumerOffsets
    from cometmq.broker.metrics.broker_stats import BrokerStats
    from cometmq.broker.requests.large_tables import LargeTableAnswers
    from cometmq.net.connection import Connection
    from cometmq.store.message_store import MessageStore
    from cometmq.wire.command import Command

log = logging.getLogger(__name__)

LIST_MAX = 500
"""Topics that one request may create: so many hold up the loop for some milliseconds."""
LIST_BYTES_MAX = 256 * 1024
"""Longest list of them, or of groups."""

_PERM_MAX = 15
_CHECKS_MAX = 5
"""How often other brokers are asked whether they withdraw a topic in global order ..."""
_CHECK_S = 0.2
"""... and the time between, seconds."""


class TopicRequests:
    """Answers requests about topics."""

    def __init__(
        self,
        topics: Topics,
        offsets: ConsumerOffsets,
        store: MessageStore,
        stats: BrokerStats,
        registration: NamesrvRegistration,
        global_order: GlobalOrderCheck,
        large_tables: LargeTableAnswers,
        *,
        may_mix: bool = False,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._registration = registration
        self._global_order = global_order
        self._large_tables = large_tables
        self._may_mix = may_mix
        self._deleting = asyncio.Lock()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                Code.UPDATE_AND_CREATE_TOPIC,
                self.create_or_update,
                RequestEffect.MUTATING | RequestEffect.CREATING,
            ),
            Endpoint(
                Code.UPDATE_AND_CREATE_TOPIC_LIST,
                self.create_or_update_list,
                RequestEffect.MUTATING | RequestEffect.CREATING,
                resources=_topics_in_body,
                body_bytes_max=LIST_BYTES_MAX,
            ),
            Endpoint(
                Code.DELETE_TOPIC_IN_BROKER,
                self.delete,
                RequestEffect.MUTATING | RequestEffect.CREATING,
            ),
            Endpoint(Code.CLEAN_UNUSED_TOPIC, self.clean_unused, RequestEffect.MUTATING),
            Endpoint(Code.GET_ALL_TOPIC_CONFIG, self.list_configs),
            Endpoint(Code.GET_TOPIC_CONFIG, self.get_config),
            Endpoint(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.list_system_topics),
        )

    async def create_or_update(self, request: Command, _connection: Connection) -> Reply:
        """Create or change one topic (17)."""
        header = CreateTopicRequestHeader.decode(request.ext)
        self._check(header.topic)
        await self._put(partial(self._configs_of, header))
        return Reply()

    async def create_or_update_list(self, request: Command, _connection: Connection) -> Reply:
        """Create or change several topics (18): all of them, or none when one is wrong."""
        configs = decode_topic_config_list(request.body)
        if len(configs) > LIST_MAX:
            raise Reject(
                ResponseCode.INVALID_PARAMETER,
                f"{len(configs)} topics in one request, where {LIST_MAX} may be; send several",
            )

        await self._put(lambda: list(map(self._config_in_list, configs)))
        return Reply()

    def _config_in_list(self, config: TopicConfig) -> TopicConfig:
        """A topic of a list after the change: as given, with attributes as `topic_attributes` says.

        A name of an attribute without a sign stands for its value as it is to be.
        """
        self._check(config.topic_name)
        present = self._topics.get(config.topic_name)
        before = present.attributes if present else None
        given = [
            name if name.startswith("-") else f"+{name.removeprefix('+')}={value}"
            for name, value in config.attributes.items()
            if before is None or before.get(name) != value
        ]
        after = attributes.changed(before, ",".join(given), may_mix=self._may_mix)
        changed = replace(config, attributes=after)
        _check_shape(changed, changed)
        return changed

    def _configs_of(self, header: CreateTopicRequestHeader) -> list[TopicConfig]:
        """The topic after the change, given as it is now."""
        present = self._topics.get(header.topic)
        before, change = present.attributes if present else None, header.attributes or ""
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=attributes.changed(before, change, may_mix=self._may_mix),
        )
        _check_shape(config, config)
        return [config]

    async def delete(self, request: Command, _connection: Connection) -> Reply:
        """Delete a topic, its queues and the offsets in it (215): all of it, whatever crashes.

        It can be made again once this is answered. Raises Reject where the disk refuses.
        """
        topic = DeleteTopicRequestHeader.decode(request.ext).topic
        if not topic.strip() or self._topics.is_system(topic):
            raise _invalid(f"the topic {topic!r} belongs to the broker and is not deleted")
        is_there = self._topics.get(topic) is not None
        if is_there or topic in self._topics.leaving or topic in self._store.deletion.topics():
            await self._delete({topic})
        self._offsets.forget_topic(topic)
        self._stats.forget_topic(topic)
        return Reply()

    async def clean_unused(self, _request: Command, _connection: Connection) -> Reply:
        """Delete the queues of topics that the broker does not have (316)."""
        topics = self._topics
        lost = {name for name in self._store.deletion.topics() if topics.get(name) is None}
        lost = {name for name in lost if not topics.is_system(name)}
        if lost:
            await self._delete(lost)
        return Reply()

    async def _delete(self, gone: set[str]) -> None:
        deletion, leaving = self._store.deletion, self._topics.leaving
        async with self._deleting:
            leaving |= gone
            try:
                await deletion.begin(gone)
                await self._forget(gone)
            except (OSError, Reject) as error:
                leaving -= gone
                raise _kept(error) from error
            try:
                await deletion.end(gone)
            except OSError as error:
                raise _kept(error) from error
            leaving -= gone

    async def _forget(self, gone: set[str]) -> None:
        for topic in gone:
            self._topics.delete(topic)
        try:
            await self._topics.writer.flushed()
        except Reject:
            await self._store.deletion.take_back(gone)
            raise

    def list_configs(self, request: Command, _connection: Connection) -> Reply | Awaitable[Reply]:
        """Return all topics (21), or the page of them that was asked for."""
        header = GetAllTopicConfigRequestHeader.decode(request.ext)
        topics = self._topics
        page = AskedPage(header.topic_seq, header.data_version, header.max_topic_num)
        if len(topics.table) > SMALL_MAX:
            return self._list_many(page)
        names = topics.table if page.is_whole else page.names(sorted(topics.table), topics.version)
        table = TopicTable(topics.version, {name: topics.table[name] for name in names})
        return Reply(header=self._total(), body=encode_topic_table(table))

    async def _list_many(self, page: AskedPage) -> Reply:
        topics, tables, name = self._topics, self._large_tables, "topicConfigTable"
        empty = encode_topic_table(TopicTable(topics.version, {}))
        version, total = (topics.version, topics.generation), self._total()
        if page.is_whole:
            body = await tables.encode(name, version, empty, topics.table, topic_fields)
        else:
            ordered = await tables.sorted_names(name, version, topics.table)
            names = page.names(ordered, version[0])
            body = await tables.encode_page(name, empty, names, topics.table, topic_fields)
        return Reply(header=total, body=body)

    def _total(self) -> GetAllTopicConfigResponseHeader:
        return GetAllTopicConfigResponseHeader(total_topic_num=len(self._topics.table))

    def get_config(self, request: Command, _connection: Connection) -> Reply:
        """Return one topic (351)."""
        topic = GetTopicConfigRequestHeader.decode(request.ext).topic
        config = self._topics.get(topic)
        if config is None:
            raise no_topic(topic)
        return Reply(body=encode_topic_config(config))

    def list_system_topics(self, _request: Command, _connection: Connection) -> Reply:
        """Return the names of the broker's own topics (305)."""
        return Reply(body=encode_topic_list(self._topics.system))

    async def _put(self, shaped: Callable[[], list[TopicConfig]]) -> None:
        """Put topics as `shaped` returns them; raises Reject where another broker has one in order.

        Other brokers are asked before and, since one of them may create the topic just now, after.
        Each registers what it has created before it asks again, so one of the two sees the other.
        """
        topics, others = self._topics, self._global_order
        new = {one.topic_name: one for one in shaped() if topics.get(one.topic_name) is None}
        alone = {name for name, config in new.items() if is_in_global_order(config)}
        if found := await others.find(new, alone):
            raise _is_elsewhere(found)
        configs = shaped()
        new = {name: one for name, one in new.items() if topics.get(name) is None}
        if new:
            topics.require_room(len(new))
        for config in configs:
            topics.put(config)
        checks = 0
        while new and await self._registration.wait_registered():
            if not (found := await others.find(new, alone)):
                return
            checks += 1
            if (
                checks == _CHECKS_MAX
                or found.topic not in alone
                or not self._takes_precedence(found)
            ):
                self._withdraw(new)
                await topics.writer.flushed()
                raise _is_elsewhere(found)
            await asyncio.sleep(_CHECK_S)

    def _withdraw(self, made: Iterable[str]) -> None:
        """Take back topics that were just made, but for those that got messages meanwhile."""
        used = self._store.deletion.topics()
        for name in made:
            if name not in used:
                self._topics.delete(name)
            else:
                log.warning(
                    "the topic %s stays though another broker has it and one of them is in global "
                    "order: it got messages already; delete it on one of the two",
                    name,
                )

    def _takes_precedence(self, found: ForeignTopic) -> bool:
        """Whether the other one should withdraw, of two that make a topic at the same time."""
        is_less = self._global_order.broker_name < found.broker_name
        return is_less or not found.is_in_global_order

    def _check(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is None and self._topics.is_system(topic):
            problem = f"the topic {topic} belongs to the broker and cannot be changed"
        if problem is not None:
            raise _invalid(problem)


def no_topic(topic: str) -> Reject:
    """The refusal of a request that names an unknown topic."""
    return Reject(
        ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic[:64]} does not exist on this broker"
    )


def _check_shape(config: TopicConfig, marked: TopicConfig | None) -> None:
    """Raise Reject for a shape that no topic has, or not this one; `marked` has its attributes."""
    for what, queues in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        if not 0 <= queues <= QUEUES_MAX:
            raise _invalid(f"{queues} {what} queues: give 0 to {QUEUES_MAX}")
    if not 0 <= config.perm <= _PERM_MAX:
        raise _invalid(f"the permission {config.perm} is no sum of 1, 2, 4 and 8")
    if config.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
        raise Reject(
            ResponseCode.SYSTEM_ERROR,
            f"the filter type {config.topic_filter_type!r} is neither SINGLE_TAG nor MULTI_TAG",
        )
    is_one = config.read_queue_nums == config.write_queue_nums == 1
    if marked is not None and is_in_global_order(marked) and not is_one:
        raise _invalid(
            f"the topic {config.topic_name} keeps all its messages in one order and so has one "
            "queue; make another topic for more, or take its attribute comet.order away"
        )


def _is_elsewhere(found: ForeignTopic) -> Reject:
    """The refusal of a topic whose messages would have one order, but for another broker's."""
    topic, name, is_in_order = found
    if not is_in_order:
        return _invalid(
            f"the topic {topic} lies on the broker {name} already; global order needs a topic "
            "that has had one queue from the start"
        )
    return _invalid(
        f"the topic {topic} keeps all its messages in one order on the broker {name} and "
        "cannot be made on another; take its attribute comet.order away there first"
    )


def _kept(error: OSError | Reject) -> Reject:
    """The refusal of a deletion that the disk does not take."""
    return error if isinstance(error, Reject) else not_written("deleted topics", error)


def _invalid(remark: str) -> Reject:
    return Reject(ResponseCode.INVALID_PARAMETER, remark)


def _topics_in_body(request: Command) -> RequestResources:
    configs = decode_topic_config_list(request.body)
    return RequestResources(topics=tuple(config.topic_name for config in configs))
