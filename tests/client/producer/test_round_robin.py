"""Queues in turn, without the broker that failed."""

from cometmq.client.producer.queue_selector import QueueSelector
from cometmq.model.queue import MessageQueue


def test_the_turn_goes_round_and_avoids_the_broker_that_failed():
    queues = [MessageQueue("T", broker, n) for broker in "ab" for n in range(2)]
    choice = QueueSelector(first=5)
    assert [choice.round_robin("T", queues) for _ in range(4)] == [*queues[1:], queues[0]]
    assert {choice.round_robin("T", queues, "a").broker_name for _ in range(8)} == {"b"}
    assert choice.round_robin("T", queues[:2], "a") in queues[:2]  # nothing else is there
