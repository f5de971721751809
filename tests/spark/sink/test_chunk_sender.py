"""Which requests a chunk becomes, and what follows from what brokers answer, in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cometmq.client.producer.prepared_message import EncodedBatch, PreparedMessage
from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.errors import BrokerError, ConnectFailed, RowNotSent
from cometmq.model.queue import MessageQueue
from cometmq.spark.sink.chunk_sender import ChunkSender
from cometmq.spark.sink.row_columns import RowColumns
from cometmq.spark.sink.row_decisions import RowDecisions
from cometmq.wire.records import message_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.client.producer.retrying_sender import ChooseQueue
    from cometmq.errors import CometError
    from cometmq.spark.sink.row_decisions import RowChunk

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in (0, 1)]


class Brokers:
    """Stands in for a producer's pipeline: takes requests, and answers as `judge` says."""

    def __init__(self, judge: Callable[[list[bytes]], CometError | None]) -> None:
        self.judge = judge
        self.requests: list[tuple[MessageQueue, list[bytes]]] = []
        self.stored: dict[MessageQueue, list[bytes]] = {}
        self.under_way: set[MessageQueue] = set()
        self.queue_selector = QueueSelector(0)
        routes = SimpleNamespace(
            publish_queues=self._queues, find_master_addr=lambda name: name, cached={}
        )
        keys = SimpleNamespace(
            joined_keys=lambda _, count: b"".join(b"%032d" % n for n in range(count))
        )
        clock = SimpleNamespace(now_ms=lambda: 5)
        self.session = SimpleNamespace(routes=routes, uniq_keys=keys, clock=clock)
        self.retrying_sender = SimpleNamespace(
            send=self._send,
            send_encoded=self._send,
            options=SimpleNamespace(default_topic_queues=4),
        )

    async def _queues(self, topic: str, _: int) -> list[MessageQueue]:
        return QUEUES

    async def _send(
        self, sent: EncodedBatch | PreparedMessage, choose: ChooseQueue, *_: object
    ) -> None:
        if isinstance(sent, PreparedMessage):
            bodies = [sent.body]
        else:
            bodies = [item.body for item in message_batch.decode(sent.items)]
        queue = await choose(None)
        assert queue not in self.under_way, "a queue with order has one request under way"
        self.under_way.add(queue)
        self.requests.append((queue, bodies))
        await asyncio.sleep(0)
        self.under_way.discard(queue)
        if error := self.judge(bodies):
            raise error
        self.stored.setdefault(queue, []).extend(bodies)


def chunk_of(**columns: Any) -> RowChunk:
    batch = pa.RecordBatch.from_pydict(columns)
    used = RowColumns(frozenset(columns), is_read=False)
    (chunk,) = RowDecisions(used, "T", "q/0/0", 10_000).chunks([batch])
    return chunk


def send(brokers: Brokers, chunk: RowChunk, *, keeps_refused: bool = True) -> None:
    sender = ChunkSender(brokers, 1.0, 3, keeps_refused=keeps_refused)  # type: ignore[arg-type]
    asyncio.run(sender.send(chunk))


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def refusing(*wrong: bytes) -> Callable[[list[bytes]], CometError | None]:
    def judge(bodies: list[bytes]) -> CometError | None:
        return BrokerError(13, "illegal", "a") if set(wrong) & set(bodies) else None

    return judge


def test_rows_without_order_are_spread_over_all_queues_in_frames() -> None:
    brokers = Brokers(lambda bodies: None)
    send(brokers, chunk_of(body=numbers(1600)))
    assert sorted(len(bodies) for _, bodies in brokers.requests) == [64, 512, 512, 512]
    assert {queue for queue, _ in brokers.requests} == set(QUEUES)


def test_frames_are_bounded_in_bytes_and_a_delayed_row_travels_alone() -> None:
    brokers = Brokers(lambda bodies: None)
    send(brokers, chunk_of(body=[b"x" * 400_000] * 5))
    assert sorted(len(bodies) for _, bodies in brokers.requests) == [1, 2, 2]
    brokers = Brokers(lambda bodies: None)
    send(brokers, chunk_of(body=numbers(5), delay_level=[0, None, 2, 0, 0]))
    assert sorted(bodies for _, bodies in brokers.requests) == [[b"0", b"1"], [b"2"], [b"3", b"4"]]


def test_what_a_broker_refuses_in_a_batch_is_found_and_the_rest_is_sent() -> None:
    chunk = chunk_of(body=numbers(400))
    brokers = Brokers(refusing(b"5", b"77", b"399"))
    send(brokers, chunk)
    assert sorted(chunk.refused) == [5, 77, 399]
    assert chunk.refused[5] == "a answered code 13: illegal"
    assert sum(len(bodies) for bodies in brokers.stored.values()) == 397
    assert len(brokers.requests) < 60


def test_without_a_table_nothing_of_a_key_is_sent_after_the_row_that_is_refused() -> None:
    chunk = chunk_of(body=numbers(400), sharding_key=["k"] * 400)
    brokers = Brokers(refusing(b"77"))
    with pytest.raises(RowNotSent, match="row 77 of partition 3 was not sent to the topic T: a an"):
        send(brokers, chunk, keeps_refused=False)
    (stored,) = brokers.stored.values()
    assert stored == numbers(77)


def test_rows_of_a_key_and_rows_for_its_queue_keep_their_order_around_refused_ones() -> None:
    keys = [f"k{number % 7}" for number in range(3000)]
    chunk = chunk_of(body=numbers(3000), sharding_key=keys, delay_level=[0, 0, 0, 0, 1] * 600)
    brokers = Brokers(refusing(b"9", b"1000", b"2999"))
    send(brokers, chunk)
    assert sorted(chunk.refused) == [9, 1000, 2999]
    of_key: dict[str, list[int]] = {}
    for bodies in brokers.stored.values():
        for body in bodies:
            of_key.setdefault(keys[int(body)], []).append(int(body))
    for key, found in of_key.items():
        assert found == [at for at in range(3000) if keys[at] == key and at not in chunk.refused], (
            key
        )


def test_an_error_that_may_pass_fails_the_task_also_with_a_table() -> None:
    chunk = chunk_of(body=numbers(10))
    with pytest.raises(
        RowNotSent, match="row 0 of partition 3 was not sent to the topic T: nobody"
    ):
        send(Brokers(lambda bodies: ConnectFailed("nobody listens")), chunk)
    assert not chunk.refused
