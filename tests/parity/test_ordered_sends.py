"""Which queue a key goes to, and that its messages lie there in order, on both implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import ClientError, Message, MessageQueue, Producer, by_hash
from parity.clients import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parity.conftest import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
MIN_INT, MIN_LONG = -(2**31), -(2**63)


def queue_of(cluster: Cluster, message: Message, **more: object) -> int:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        result = producer.send(message, **more)
    found = [one for one in stored(cluster, message.topic, 1) if one.msg_id == result.msg_id]
    assert [one.queue_id for one in found] == [result.queue.queue_id]
    return result.queue.queue_id


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("a", 97),
        ("hello", 99_162_322),
        ("N101", 2_372_324),
        ("polygenelubricants", MIN_INT),
        ("Größe", 69_209_585),
        ("\U0001d11e", 1_772_394),
    ],
)
def test_a_text_goes_to_the_queue_of_javas_hash(
    cluster: Cluster, make_topic: Callable[[int], str], key: str, code: int
) -> None:
    topic = make_topic(7)
    wanted = abs(code) % 7  # Java takes the remainder first, then its absolute value
    assert queue_of(cluster, Message(topic, b"x", sharding_key=key)) == wanted
    assert queue_of(cluster, Message(topic, b"x"), queue=by_hash(key)) == wanted


@pytest.mark.parametrize(
    ("number", "is_long", "code"),
    [
        (5, False, 5),
        (-5, False, -5),
        (MIN_INT, False, MIN_INT),
        (5, True, 5),
        (-5, True, 4),
        (2**40 + 3, False, 259),
        (MIN_LONG, True, MIN_INT),
    ],
)
def test_a_number_goes_to_the_queue_of_javas_integer_or_long(
    cluster: Cluster, make_topic: Callable[[int], str], number: int, is_long: bool, code: int
) -> None:
    topic = make_topic(7)
    chosen = by_hash(number, is_long=is_long)
    assert queue_of(cluster, Message(topic, b"x"), queue=chosen) == abs(code) % 7


def test_a_function_chooses_the_queue(cluster: Cluster, topic: str) -> None:
    def by_length(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[len(message.body) % len(queues)]

    def elsewhere(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return MessageQueue("other", "nowhere", 0)

    with Producer("parity", namesrv=cluster.namesrv) as producer:
        for length in range(1, 9):
            result = producer.send(Message(topic, b"x" * length), queue=by_length)
            assert result.queue.queue_id == length % 4
        with pytest.raises(ClientError, match="no queue of"):
            producer.send(Message(topic, b"x"), queue=elsewhere)


def test_a_message_goes_to_the_queue_that_is_given(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        queues = producer.queues(topic)
        for queue in queues:
            assert producer.send(Message(topic, b"x"), queue=queue).queue == queue
            assert producer.send_async(Message(topic, b"x"), queue=queue).result(20).queue == queue
            producer.send_oneway(Message(topic, b"x"), queue=queue)
        found = [message.queue_id for message in stored(cluster, topic, 12)]
    assert found == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_balanced_keys_go_to_the_least_loaded_queue_and_stay(cluster: Cluster, topic: str) -> None:
    keys = [f"key-{n}" for n in range(12)]
    with Producer("parity", namesrv=cluster.namesrv, keys="balanced") as producer:
        first = [producer.send(Message(topic, b"x", sharding_key=key)).queue for key in keys]
        again = [producer.send(Message(topic, b"y", sharding_key=key)).queue for key in keys]
    assert sorted(first.count(queue) for queue in set(first)) == [3, 3, 3, 3]
    assert again == first


def test_the_ways_of_sending_agree_on_the_queue_of_a_key(cluster: Cluster, topic: str) -> None:
    keys = [f"key-{n}" for n in range(10)]

    def messages() -> list[Message]:
        return [Message(topic, b"x", sharding_key=key) for key in keys]

    with Producer("parity", namesrv=cluster.namesrv, check=lambda half: True) as producer:
        at = [producer.send(message).queue for message in messages()]
        assert [producer.send_async(one).result(20).queue for one in messages()] == at
        assert [result.queue for result in producer.send_batch(messages())] == at
        assert [result.queue for result in producer.send_many(messages())] == at
        with producer.transaction() as tx:
            halves = [tx.send(one) for one in messages()]
        for one in messages():
            producer.send_oneway(one)
        by_queue: dict[str, set[int]] = {}
        for message in stored(cluster, topic, 60):
            by_queue.setdefault(str(message.sharding_key), set()).add(message.queue_id)
    assert by_queue == {key: {queue.queue_id} for key, queue in zip(keys, at, strict=True)}
    assert len(halves) == 10


def test_messages_of_a_key_lie_in_the_order_of_their_sending(cluster: Cluster, topic: str) -> None:
    with Producer("parity", namesrv=cluster.namesrv) as producer:
        futures = [
            producer.send_async(Message(topic, b"%d" % n, sharding_key=f"key-{n % 8}"))
            for n in range(400)
        ]
        for future in futures:
            future.result(30)
    by_key: dict[str, list[int]] = {}
    for message in stored(cluster, topic, 400):
        by_key.setdefault(str(message.sharding_key), []).append(int(message.body))
    assert by_key == {f"key-{key}": list(range(key, 400, 8)) for key in range(8)}
