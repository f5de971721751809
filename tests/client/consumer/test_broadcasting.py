"""Groups that are broadcast to: every member gets everything, with offsets in a file of its own."""

import json
from collections import Counter

import pytest

from client.short_delay_cluster import until
from cometmq import ClientError, ConsumeFrom, Message, Producer, PushConsumer


@pytest.fixture
def member(cluster, topic, group, tmp_path):
    def make(name, seen, **settings):
        consumer = PushConsumer(
            group,
            namesrv=cluster.namesrv,
            broadcasting=True,
            offsets_dir=tmp_path,
            instance_name=name,
            **{"consume_from": ConsumeFrom.FIRST, **settings},
        )
        consumer.subscribe(topic, "*", lambda messages: seen.extend(m.body for m in messages))
        return consumer

    return make


def send(cluster, topic, numbers):
    with Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_many([Message(topic, str(n).encode()) for n in numbers])
    return [str(n).encode() for n in numbers]


def test_every_member_gets_every_message_and_goes_on_from_its_own_file(
    cluster, topic, member, tmp_path, group
):
    bodies = send(cluster, topic, range(40))
    one, other = [], []
    with member("one", one), member("other", other):
        until(lambda: len(one) >= 40 and len(other) >= 40)
    assert Counter(one) == Counter(other) == Counter(bodies)
    more = send(cluster, topic, range(40, 50))
    again = []
    with member("one", again) as consumer:
        until(lambda: len(again) >= 10)
        assert len(consumer.assigned) == 4
    assert sorted(again) == sorted(more)
    (path,) = tmp_path.glob(f"*@one/{group}/offsets.json")
    table = path.read_text()
    assert '{"brokerName":' in table.replace("\n", "").replace("\t", "")
    assert path.with_name("offsets.json.bak").exists()


def test_orderly_members_get_every_queue_in_its_order_without_locks(cluster, topic, member):
    send(cluster, topic, range(40))
    one, other = [], []
    with member("one", one, orderly=True), member("other", other, orderly=True):
        until(lambda: len(one) >= 40 and len(other) >= 40)
    assert sorted(one) == sorted(other)


def test_what_fails_is_passed_over_and_does_not_come_again(cluster, topic, group, tmp_path, caplog):
    send(cluster, topic, range(8))
    calls = []

    def fail_on_odd(messages):
        calls.append(int(messages[0].body))
        if calls[-1] % 2:
            raise ValueError("odd")

    consumer = PushConsumer(
        group,
        namesrv=cluster.namesrv,
        broadcasting=True,
        offsets_dir=tmp_path,
        consume_from="first",
    )
    consumer.subscribe(topic, "*", fail_on_odd)
    with consumer:
        until(lambda: len(calls) >= 8)
        assert consumer.client_id.endswith("@DEFAULT")
    assert sorted(calls) == list(range(8))
    assert "skipped" in caplog.text


def test_a_broken_file_is_replaced_by_its_bak_and_two_broken_ones_are_an_error(
    cluster, topic, member, tmp_path, group, caplog
):
    bodies, seen = send(cluster, topic, range(8)), []
    with member("one", seen, persist_s=0.05):
        until(lambda: len(seen) >= 8)
    send(cluster, topic, range(8, 12))
    with member("one", seen, persist_s=0.05):
        until(lambda: len(seen) >= 12)
    (path,) = tmp_path.glob(f"*@one/{group}/offsets.json")
    path.write_text("{{{")
    again = []
    assert "older offsets" not in caplog.text
    with member("one", again) as consumer:
        until(lambda: len(consumer.assigned) == 4)
    assert f"older offsets in {path}.bak are used" in caplog.text
    assert Counter(again) <= Counter(seen)
    assert len(seen) >= len(bodies)
    path.write_text("{{{")
    path.with_name("offsets.json.bak").write_text(json.dumps([1]))
    with pytest.raises(ClientError, match="cannot be read"):
        member("one", []).start()
