"""A broker in a process of its own, and a sender that says which queue a message goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.commands import send_header
from client.short_delay_cluster import until
from cometmq import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster, ServerProcess
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import DeleteTopicRequestHeader
from cometmq.wire.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from cometmq.wire.records import message_batch, properties

if TYPE_CHECKING:
    from collections.abc import Iterable


class Live(LocalCluster):
    """Both roles in one child; `kill` ends both."""

    def make_topic(self, topic: str, queues: int) -> str:
        with Admin(namesrv=self.namesrv) as admin:
            admin.create_topic(topic, queues=queues)
        return topic

    def delete_topic(self, topic: str) -> None:
        with BlockingChannel(self.broker) as channel:
            header = DeleteTopicRequestHeader(topic=topic)
            assert channel.call(RequestCode.DELETE_TOPIC_IN_BROKER, header).code == 0
        with BlockingChannel(self.namesrv) as channel:
            gone = DeleteTopicFromNamesrvRequestHeader(topic=topic)
            assert channel.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone).code == 0

    def grow_topic(self, topic: str, queues: int) -> None:
        with Admin(namesrv=self.namesrv) as admin:
            admin.alter_topic(topic, queues)

    def send(
        self,
        topic: str,
        queue_id: int,
        bodies: Iterable[bytes],
        pairs: dict[str, str] | None = None,
    ) -> None:
        """Batches of at most 500 messages for one queue, each acknowledged."""
        items = [
            message_batch.BatchItem(0, body, properties.encode(pairs or {})) for body in bodies
        ]
        header = send_header(topic, queue_id=queue_id, batch=True)
        with BlockingChannel(self.broker) as channel:
            for at in range(0, len(items), 500):
                data = message_batch.encode(items[at : at + 500])
                answer = channel.call(RequestCode.SEND_BATCH_MESSAGE, header, data)
                assert answer.code == ResponseCode.SUCCESS, answer


class TwoBrokers(Live):
    """A name server with one broker in its process, and broker-b in another."""

    def start_second(self) -> None:
        arguments = ["broker", f"-n{self.namesrv}", "-p0", f"--store={self.store}-b"]
        self.second = ServerProcess([*arguments, "--set=brokerName=broker-b"])
        with Admin(namesrv=self.namesrv) as admin:
            until(lambda: "broker-b" in admin.clusters().broker_addr_table, 20)

    def kill_second(self) -> None:
        self.second.kill()
        with Admin(namesrv=self.namesrv) as admin:
            until(lambda: "broker-b" not in admin.clusters().broker_addr_table, 20)
