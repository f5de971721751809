"""Raw commands to a broker over one connection, and what their answers bring."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cometmq.model.subscription import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.net.channel import Channel, connect
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command, request
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2
from cometmq.wire.java_hash import java_hash
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

if TYPE_CHECKING:
    from cometmq.broker.app import Broker
    from cometmq.wire.headers.base import Header

TIMEOUT_S = 10.0


class Client:
    """One connection that speaks raw commands."""

    def __init__(self, channel: Channel, asked: asyncio.Queue[Command]) -> None:
        self.channel, self.asked = channel, asked

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", **ext: str
    ) -> Command:
        command = request(code, 0, header, body)
        command.ext.update(ext)
        return await self.channel.call(command, TIMEOUT_S)

    async def send(self, topic: str, body: bytes = b"hello", **more: Any) -> Command:
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, **more), body)

    async def pull(self, topic: str, **more: Any) -> Command:
        return await self.call(RequestCode.PULL_MESSAGE, pull_header(topic, **more))

    async def drain(self, topic: str, **more: Any) -> list[stored.StoredRecord]:
        """All that lies in a queue of the topic."""
        found: list[stored.StoredRecord] = []
        answer = await self.pull(topic, **more)
        while answer.code == ResponseCode.SUCCESS:
            found += records(answer)
            answer = await self.pull(topic, queue_offset=int(answer.ext["nextBeginOffset"]), **more)
        return found

    async def beat(self, group: str, *topics: str, client_id: str = "c1", **more: Any) -> Command:
        beat = heartbeat(group, *topics, client_id=client_id, **more)
        return await self.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))

    async def create_topic(self, topic: str = "T", **more: str) -> Command:
        """Create a topic of three queues; `more` are other header fields."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "3",
            "writeQueueNums": "3",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        return await self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**fields, **more})

    async def commit(self, offset: int, **more: str) -> Command:
        """Commit an offset of the group CG in queue 0 of topic T, unless `more` says otherwise."""
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
        return await self.call(RequestCode.UPDATE_CONSUMER_OFFSET, **{**fields, **more})

    async def committed(self, topic: str = "T", queue_id: int = 0, **more: str) -> Command:
        """The answer to the question for the committed offset of the group CG."""
        fields = {"consumerGroup": "CG", "topic": topic, "queueId": str(queue_id), **more}
        return await self.call(RequestCode.QUERY_CONSUMER_OFFSET, **fields)

    async def asked_next(self) -> Command:
        """The broker's next request to us."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.asked.get()

    def close(self) -> None:
        self.channel.close()


class Harness:
    """A running broker and the clients connected to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[Client] = []

    async def client(self) -> Client:
        """A new connection."""
        asked: asyncio.Queue[Command] = asyncio.Queue()

        def on_request(command: Command, _channel: Channel) -> None:
            asked.put_nowait(command)

        client = Client(await connect(self.broker.address, on_request=on_request), asked)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()


def send_header(topic: str, **more: Any) -> SendMessageRequestHeaderV2:
    pairs = {"UNIQ_KEY": "K1", "WAIT": "true", **more.pop("properties", {})}
    fields: dict[str, Any] = {
        "producer_group": "PG",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": properties.encode(pairs).decode(),
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
    }
    return SendMessageRequestHeaderV2(**{**fields, **more})


def pull_header(topic: str, **more: Any) -> PullMessageRequestHeader:
    fields: dict[str, Any] = {
        "consumer_group": "CG",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_ms": 0,
        "subscription": "*",
        "sub_version": 0,
        "expression_type": "TAG",
    }
    return PullMessageRequestHeader(**{**fields, **more})


def subscription(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    tags = [] if expression == "*" else expression.split("||")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=frozenset(tags),
        code_set=frozenset(java_hash(tag) for tag in tags),
        sub_version=version,
    )


def heartbeat(group: str, *topics: str, client_id: str = "c1", **more: Any) -> HeartbeatData:
    subscriptions = more.pop("subscriptions", tuple(subscription(topic) for topic in topics))
    beat = {
        key: more.pop(key) for key in list(more) if key in ("heartbeat_fingerprint", "without_sub")
    }
    consumer = ConsumerData(group_name=group, subscriptions=subscriptions, **more)
    return HeartbeatData(
        client_id=client_id, consumers=(consumer,), producer_groups=("PG",), **beat
    )


def records(answer: Command) -> list[stored.StoredRecord]:
    return list(stored.iterate(answer.body))


def properties_of(record: stored.StoredRecord) -> dict[str, str]:
    return properties.decode(stored.shown_properties(record.properties))


async def received(client: Client, count: int, topic: str = "T") -> list[stored.StoredRecord]:
    """Pull, waiting, until so many have come."""
    found: list[stored.StoredRecord] = []
    while len(found) < count:
        answer = await client.pull(
            topic, queue_offset=len(found), sys_flag=6, suspend_timeout_ms=5_000
        )
        if answer.code == ResponseCode.SUCCESS:
            found += records(answer)
    return found


def held_pull(client: Client, topic: str, **more: Any) -> asyncio.Future[Command]:
    """Send a pull that may wait, and do not wait for its answer."""
    header = pull_header(topic, **{"sys_flag": 6, "suspend_timeout_ms": 20_000, **more})
    return client.channel.call_nowait(request(RequestCode.PULL_MESSAGE, 0, header))


async def make_topic(harness: Harness, topic: str = "T") -> None:
    """Make a topic of four queues, on disk as well: only then are its sends short."""
    harness.broker.state.topics.ensure(topic, 4)
    await harness.broker.state.topics.writer.flushed()


async def until_held(harness: Harness, count: int) -> None:
    """Wait until so many requests are held."""
    async with asyncio.timeout(10):
        while harness.broker.state.held_requests.count != count:
            await asyncio.sleep(0.005)
