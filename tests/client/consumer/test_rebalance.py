"""Groups of several processes: sharing out, joining, dying, and a broker that dies under them."""

import pytest

from client.consumer_group import KEYS, QUEUES, Source, audit, queues_of
from client.short_delay_cluster import until
from cometmq import ConsumeFrom, Message, Producer, PushConsumer


def test_members_share_the_queues_and_hand_them_over_in_order(cluster, make_topic, group, members):
    topic = make_topic(cluster, QUEUES)
    settings = {"namesrv": cluster.namesrv, "topic": topic, "group": group}
    source = Source(cluster, topic)
    source.start()
    first = members(**settings)
    until(lambda: len(queues_of(first)) == QUEUES)
    second = members(**settings)
    until(lambda: len(queues_of(second)) == QUEUES // 2)
    first.stop()
    at = len(second.seen)
    until(lambda: len(queues_of(second, at)) == QUEUES)
    count = source.end()
    until(lambda: audit([first, second])[0] == count)
    second.stop()
    total, repeats = audit([first, second])
    assert (total, repeats) == (count, 0)  # clean hand-overs repeat nothing


def test_a_member_killed_without_warning_is_replaced_once_its_locks_ran_out(
    cluster, make_topic, group, members
):
    topic = make_topic(cluster, QUEUES)
    settings = {"namesrv": cluster.namesrv, "topic": topic, "group": group}
    source = Source(cluster, topic)
    source.start()
    first, second = members(**settings), members(**settings)
    until(lambda: queues_of(first) and queues_of(second))
    first.kill()
    at = len(second.seen)
    until(lambda: len(queues_of(second, at)) == QUEUES)
    count = source.end()
    until(lambda: audit([first, second])[0] == count)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_broker_killed_and_started_again_stops_nobody(
    own_cluster, make_topic, group, members, orderly
):
    topic = make_topic(own_cluster, QUEUES)
    settings = {"namesrv": own_cluster.namesrv, "topic": topic, "group": group, "orderly": orderly}
    source = Source(own_cluster, topic)
    source.start()
    two = [members(**settings), members(**settings)]
    until(lambda: queues_of(two[0]) and queues_of(two[1]))
    for _ in range(2):
        seen = [len(one.seen) for one in two]
        own_cluster.kill()
        own_cluster.restart()
        until(
            lambda before=seen: all(
                len(one.seen) > at + KEYS for one, at in zip(two, before, strict=True)
            )
        )
    count = source.end()
    if orderly:
        until(lambda: audit(two)[0] == count)
    else:
        until(lambda: len({entry[3] for one in two for entry in one.seen}) == count)
    for one in two:
        one.stop()


def test_two_members_in_one_process_share_as_well(cluster, make_topic, group):
    topic = make_topic(cluster, QUEUES)
    made = [
        PushConsumer(group, namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST) for _ in "ab"
    ]
    for one in made:
        one.subscribe(topic, "*", lambda messages: None)
    with made[0], made[1]:
        assert made[0].client_id != made[1].client_id

        def shares():
            return [{q.queue_id for q in one.assigned if q.topic == topic} for one in made]

        until(lambda: [len(share) for share in shares()] == [4, 4])
        assert set.union(*shares()) == set(range(QUEUES))


def test_clients_may_be_started_before_their_name_server_and_survive_its_end(
    own_cluster, make_topic, group
):
    topic, seen = make_topic(own_cluster), []
    own_cluster.stop()
    consumer = PushConsumer(group, namesrv=own_cluster.namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, "*", lambda messages: seen.extend(m.body for m in messages))
    with consumer, Producer("producers", namesrv=own_cluster.namesrv) as producer:
        own_cluster.start()
        producer.send_many([Message(topic, b"early")])
        until(lambda: seen == [b"early"])
        own_cluster._names.kill()
        producer.send(Message(topic, b"late"))
        until(lambda: seen == [b"early", b"late"])
