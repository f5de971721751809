"""Clients of one instance name: one connection per broker, one heartbeat, groups of their own."""

import pytest

from client.scripted_broker import TOPIC
from client.short_delay_cluster import until
from cometmq import ClientError, Message, Producer, PushConsumer
from cometmq.client.session import connections
from cometmq.wire.bodies.heartbeat import decode_heartbeat
from cometmq.wire.codes import RequestCode


def test_clients_of_one_name_share_their_connections_until_the_last_one_leaves(scripted_broker):
    options = {"namesrv": scripted_broker.addr, "instance_name": "one"}
    with Producer("a", **options) as first:
        with Producer("b", **options) as second:
            for producer in (first, second):
                for _ in range(2):  # the second goes over the caller's own connection
                    producer.send(Message(TOPIC, b"x", sharding_key="k"))
            assert len(scripted_broker.connections) == 2  # as name server, and as broker
            second._bridge.call(second._inner._session.heartbeat())
            beat = decode_heartbeat(scripted_broker.requests(RequestCode.HEART_BEAT)[-1].body)
            assert sorted(beat.producer_groups) == ["a", "b"]
            assert beat.client_id.endswith("@one")
        (gone,) = scripted_broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert gone.ext["producerGroup"] == "b"
        first.send(Message(TOPIC, b"x", sharding_key="k"))
        assert len(scripted_broker.connections) == 2
    until(lambda: not scripted_broker.connections)
    assert not [key for key in connections._shared if scripted_broker.addr in key[2]]


def test_a_group_has_one_client_of_an_instance_name(scripted_broker):
    options = {"namesrv": scripted_broker.addr, "instance_name": "one"}
    with Producer("a", **options) as producer:
        again = Producer("a", **options)
        with pytest.raises(ClientError, match="instance_name"):
            again.start()
        producer.send(Message(TOPIC, b"x"))
        consumer = PushConsumer("a", **options)  # a consumer group of that name is another thing
        consumer.subscribe(TOPIC, "*", lambda messages: None)
        with consumer:
            until(lambda: any("a" in b for b in consumers_known(scripted_broker)))
    assert not [key for key in connections._shared if scripted_broker.addr in key[2]]


def consumers_known(scripted_broker):
    beats = [
        decode_heartbeat(command.body)
        for command in scripted_broker.requests(RequestCode.HEART_BEAT)
    ]
    return [[data.group_name for data in beat.consumers] for beat in beats]


def test_clients_without_a_name_share_nothing(scripted_broker):
    with (
        Producer("a", namesrv=scripted_broker.addr) as first,
        Producer("a", namesrv=scripted_broker.addr) as second,
    ):
        for producer in (first, second):
            producer.send(Message(TOPIC, b"x", sharding_key="k"))
        assert len(scripted_broker.connections) == 4
