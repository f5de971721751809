"""Bodies: encoded and decoded again, and in the forms that other clients and brokers send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ProtocolError
from cometmq.model.admin_stats import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStats,
    ProcessQueueInfo,
    QueueProgress,
    QueueTimeSpan,
    TopicConsumeRates,
    TopicOffset,
)
from cometmq.model.group import GroupRetryPolicy, SubscriptionGroupConfig
from cometmq.model.queue import MessageQueue
from cometmq.model.queue_lock import EarlyUnlockCause, LockHolder
from cometmq.model.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.model.subscription import (
    ClientConnection,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.wire.bodies import admin, group, heartbeat, lock, name_lists, offset, route, topic

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
maybe = st.none() | names
long = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-(2**31), 2**31 - 1)
reals = st.floats(allow_nan=False, allow_infinity=False)
tables = st.dictionaries(names, names, max_size=3)
queues = st.builds(MessageQueue, names, names, small)


def many(one, size=3):
    return st.lists(one, max_size=size)


brokers = st.builds(
    BrokerData,
    cluster=names,
    broker_name=names,
    broker_addrs=st.dictionaries(long, names, max_size=3),
    enable_acting_master=st.booleans(),
    zone_name=maybe,
)
queue_datas = st.builds(
    QueueData,
    broker_name=names,
    read_queue_nums=small,
    write_queue_nums=small,
    perm=small,
    topic_sys_flag=small,
)
routes = st.builds(
    TopicRouteData,
    broker_datas=many(brokers).map(tuple),
    queue_datas=many(queue_datas).map(tuple),
    order_topic_conf=maybe,
    filter_server_table=st.dictionaries(names, many(names), max_size=2),
)
subscriptions = st.builds(
    SubscriptionData,
    topic=names,
    sub_string=names,
    tags_set=st.frozensets(names, max_size=3),
    code_set=st.frozensets(small, max_size=3),
    sub_version=long,
    expression_type=names,
    class_filter_mode=st.booleans(),
)
consumers = st.builds(
    ConsumerData,
    group_name=names,
    consume_type=st.sampled_from(ConsumeType),
    message_model=st.sampled_from(MessageModel),
    consume_from_where=st.sampled_from(ConsumeFromWhere),
    subscriptions=many(subscriptions).map(tuple),
    unit_mode=st.booleans(),
)
beats = st.builds(
    HeartbeatData,
    client_id=names,
    producer_groups=many(names).map(tuple),
    consumers=many(consumers, 2).map(tuple),
    heartbeat_fingerprint=small,
    without_sub=st.booleans(),
)
versions = st.builds(DataVersion, state_version=long, timestamp=long, counter=long)
topics = st.builds(
    TopicConfig,
    topic_name=names,
    read_queue_nums=small,
    write_queue_nums=small,
    perm=small,
    topic_filter_type=names,
    topic_sys_flag=small,
    order=st.booleans(),
    attributes=tables,
)
policies = st.just(GroupRetryPolicy()) | st.one_of(
    st.builds(
        GroupRetryPolicy,
        type=st.just("EXPONENTIAL"),
        initial_ms=small,
        max_ms=small,
        multiplier=small,
    ),
    st.builds(GroupRetryPolicy, next_ms=st.lists(small, min_size=1, max_size=3).map(tuple)),
)
groups = st.builds(
    SubscriptionGroupConfig,
    group_name=names,
    consume_enable=st.booleans(),
    consume_from_min_enable=st.booleans(),
    consume_broadcast_enable=st.booleans(),
    consume_message_orderly=st.booleans(),
    retry_queue_nums=small,
    retry_max_times=small,
    group_retry_policy=policies,
    broker_id=small,
    which_broker_when_consume_slowly=small,
    notify_consumer_ids_changed_enable=st.booleans(),
    group_sys_flag=small,
    consume_timeout_minute=small,
    attributes=tables,
)
connections = st.builds(
    ClientConnection, client_id=names, client_addr=names, language=names, version=small
)
running = st.builds(
    ConsumerRunningInfo,
    properties=tables,
    subscriptions=many(subscriptions, 2).map(tuple),
    mq_table=st.dictionaries(
        queues,
        st.builds(
            ProcessQueueInfo, commit_offset=long, dropped=st.booleans(), cached_msg_count=small
        ),
        max_size=2,
    ),
    status_table=st.dictionaries(names, st.builds(TopicConsumeRates, pull_rt=reals), max_size=2),
    jstack=maybe,
)


def by_name(configs, name):
    return {getattr(config, name): config for config in configs}


@given(routes, st.booleans())
def test_routes_come_back_as_they_went(value, strict):
    data = route.encode_route(value, strict=strict)
    assert route.decode_route(data) == value
    if strict:
        assert data.isascii()
        json.loads(data)


@given(many(brokers), st.dictionaries(names, many(names), max_size=3))
def test_cluster_infos_come_back_as_they_went(found, clusters):
    value = ClusterInfo(
        broker_addr_table=by_name(found, "broker_name"), cluster_addr_table=clusters
    )
    assert route.decode_cluster_info(route.encode_cluster_info(value)) == value


def test_member_groups_come_back_as_they_went():
    value = BrokerData(cluster="c", broker_name="b", broker_addrs={0: "x:1", 1: "y:2"})
    data = route.encode_member_group(value)
    assert data == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"x:1",1:"y:2"},"brokerName":"b","cluster":"c"}}'
    )
    assert route.decode_member_group(data) == value
    assert route.decode_member_group(route.encode_member_group(None)) is None


@given(beats)
def test_heartbeats_come_back_as_they_went(value):
    assert heartbeat.decode_heartbeat(heartbeat.encode_heartbeat(value)) == value


@given(names, names, subscriptions, maybe)
def test_filter_checks_come_back_as_they_went(client_id, group_name, sub, namespace):
    value = heartbeat.CheckClient(client_id, group_name, sub, namespace)
    assert heartbeat.decode_check_client(heartbeat.encode_check_client(value)) == value


@given(names, names, many(queues), st.booleans(), st.sampled_from(EarlyUnlockCause))
def test_lock_requests_come_back_as_they_went(group_name, client_id, wanted, only_this_broker, end):
    value = lock.LockRequest(group_name, client_id, tuple(wanted), only_this_broker, end)
    assert lock.decode_lock_request(lock.encode_lock_request(value)) == value
    assert lock.decode_locked(lock.encode_locked(wanted)) == frozenset(wanted)
    others = {queue: LockHolder(client_id, 5, 7) for queue in wanted}
    assert lock.decode_holders(lock.encode_locked([], others)) == others


def test_a_lock_request_that_promises_nothing_is_that_of_a_java_client():
    assert lock.encode_lock_request(lock.LockRequest("G", "c", ())) == (
        b'{"clientId":"c","consumerGroup":"G","mqSet":[],"onlyThisBroker":false}'
    )


def test_an_empty_lock_answer_means_nothing_is_locked():
    assert lock.decode_locked(b"") == frozenset()


@given(many(topics), versions, many(names))
def test_topic_tables_and_registrations_come_back_as_they_went(configs, version, servers):
    table = topic.TopicTable(version, by_name(configs, "topic_name"))
    assert topic.decode_topic_table(topic.encode_topic_table(table)) == table
    value = topic.Registration(table, servers)
    assert topic.decode_registration(topic.encode_registration(value)) == value
    for config in configs:
        assert topic.decode_topic_config(topic.encode_topic_config(config)) == config
    assert topic.decode_topic_config_list(topic.encode_topic_config_list(configs)) == configs
    assert topic.decode_data_version(topic.encode_data_version(version)) == version


def test_a_registration_from_before_3_0_11_is_the_table_itself():
    table = topic.TopicTable(DataVersion(counter=3), {"T": TopicConfig(topic_name="T")})
    data = topic.encode_topic_table(table)
    assert topic.decode_registration(data, version=36).table == table


def test_an_empty_registration_registers_no_topics():
    assert topic.decode_registration(b"").table.topics == {}


def test_topics_without_a_name_take_the_one_they_are_filed_under():
    data = b'{"topicConfigTable":{"T":{"perm":"2","order":"TRUE","topicSynFlag":9}}}'
    wanted = TopicConfig(topic_name="T", perm=2, order=True)
    assert topic.decode_topic_table(data).topics == {"T": wanted}


@given(many(groups), versions, st.dictionaries(names, st.dictionaries(names, small), max_size=2))
def test_group_tables_come_back_as_they_went(configs, version, forbidden):
    table = group.GroupTable(version, by_name(configs, "group_name"), forbidden)
    assert group.decode_group_table(group.encode_group_table(table)) == table
    assert group.decode_group_config_list(group.encode_group_config_list(configs)) == configs
    for config in configs:
        assert group.decode_group_config(group.encode_group_config(config)) == config


def test_a_group_has_javas_defaults():
    assert group.decode_group_config(b'{"groupName":"G"}') == SubscriptionGroupConfig(
        group_name="G"
    )


@given(st.dictionaries(queues, long, max_size=3), st.booleans())
def test_resets_come_back_as_they_went(offsets, as_list):
    data = offset.encode_reset_offset(offsets, as_list=as_list)
    assert offset.decode_reset_offset(data) == offsets


def test_queue_keys_may_be_texts():
    key = json.dumps({"brokerName": "b", "queueId": 2, "topic": "t"})
    data = json.dumps({"offsetTable": {key: 9}}).encode()
    assert offset.decode_reset_offset(data) == {MessageQueue("t", "b", 2): 9}


@given(
    st.dictionaries(queues, long, max_size=2),
    st.dictionaries(names, st.dictionaries(queues, long, max_size=2), max_size=2),
)
def test_a_consumer_status_comes_back_as_it_went(own, by_client):
    data = offset.encode_consumer_status(own, by_client)
    assert offset.decode_consumer_status(data) == (own, by_client)


@given(st.lists(names, max_size=4), tables)
def test_lists_come_back_as_they_went(texts, table):
    assert name_lists.decode_topic_list(name_lists.encode_topic_list(texts)) == sorted(texts)
    assert name_lists.decode_group_list(name_lists.encode_group_list(texts)) == sorted(texts)
    assert name_lists.decode_consumer_list(name_lists.encode_consumer_list(texts)) == texts
    assert name_lists.decode_kv_table(name_lists.encode_kv_table(table)) == table


def test_an_empty_answer_is_an_empty_table():
    assert name_lists.decode_kv_table(b"") == {}


@given(
    many(connections),
    many(subscriptions),
    st.sampled_from(ConsumeType),
    st.sampled_from(MessageModel),
    st.sampled_from(ConsumeFromWhere),
)
def test_connections_come_back_as_they_went(found, subs, consume_type, model, where):
    table = {sub.topic: sub for sub in subs}
    value = admin.ConsumerConnections(found, table, consume_type, model, where)
    assert admin.decode_consumer_connections(admin.encode_consumer_connections(value)) == value
    assert admin.decode_producer_connections(admin.encode_producer_connections(found)) == found


@given(
    st.dictionaries(
        queues,
        st.builds(TopicOffset, min_offset=long, max_offset=long, last_update_timestamp=long),
        max_size=3,
    )
)
def test_topic_stats_come_back_as_they_went(table):
    assert admin.decode_topic_stats(admin.encode_topic_stats(table)) == table


@given(
    st.dictionaries(
        queues,
        st.builds(
            QueueProgress,
            broker_offset=long,
            consumer_offset=long,
            pull_offset=long,
            last_timestamp=long,
        ),
        max_size=3,
    ),
    reals,
)
def test_consume_stats_come_back_as_they_went(table, tps):
    value = ConsumeStats(offset_table=table, consume_tps=tps)
    assert admin.decode_consume_stats(admin.encode_consume_stats(value)) == value


@given(
    many(
        st.builds(
            QueueTimeSpan,
            message_queue=queues,
            min_time_stamp=long,
            max_time_stamp=long,
            consume_time_stamp=long,
            delay_time=long,
        )
    )
)
def test_time_spans_come_back_as_they_went(spans):
    assert admin.decode_time_spans(admin.encode_time_spans(spans, str)) == spans


@given(running)
def test_a_running_info_comes_back_as_it_went(value):
    assert admin.decode_running_info(admin.encode_running_info(value)) == value


def test_a_go_client_spells_dropped_right():
    data = b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"dropped":true}}}'
    assert admin.decode_running_info(data).mq_table[MessageQueue("t", "b", 0)].dropped


@given(
    st.builds(
        ConsumeMessageDirectlyResult,
        consume_result=names,
        order=st.booleans(),
        auto_commit=st.booleans(),
        remark=maybe,
        spent_time_ms=long,
    )
)
def test_results_of_consuming_directly_come_back_as_they_went(value):
    assert admin.decode_directly_result(admin.encode_directly_result(value)) == value


def test_a_go_client_tells_results_by_number():
    assert (
        admin.decode_directly_result(b'{"consumeResult":4}').consume_result == "CR_THROW_EXCEPTION"
    )


def test_a_clients_heartbeat_may_be_bare():
    beat = heartbeat.decode_heartbeat(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":"clustering",'
        b'"consumeType":1,"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T"}]}]}'
    )
    (consumer,) = beat.consumers
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.subscriptions == (SubscriptionData(topic="T"),)
    assert (beat.producer_groups, beat.heartbeat_fingerprint) == ((), 0)


def test_an_older_name_for_without_sub_is_known():
    assert heartbeat.decode_heartbeat(b'{"clientID":"c","isWithoutSub":true}').without_sub


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (route.decode_route, b"[]"),
        (route.decode_route, b'{"brokerDatas":{}}'),
        (route.decode_route, b'{"brokerDatas":[7]}'),
        (route.decode_route, b'{"brokerDatas":[{"brokerAddrs":{"x":"a"}}]}'),
        (route.decode_route, b'{"filterServerTable":{"x":7}}'),
        (route.decode_cluster_info, b'{"clusterAddrTable":{"x":7}}'),
        (heartbeat.decode_heartbeat, b'{"clientID":{}}'),
        (heartbeat.decode_heartbeat, b'{"heartbeatFingerprint":"x"}'),
        (heartbeat.decode_heartbeat, b'{"heartbeatFingerprint":1e999}'),
        (heartbeat.decode_heartbeat, b'{"heartbeatFingerprint":9223372036854775808}'),
        (heartbeat.decode_heartbeat, b'{"consumerDataSet":[{"messageModel":"x"}]}'),
        (heartbeat.decode_heartbeat, b'{"consumerDataSet":[{"messageModel":5}]}'),
        (lock.decode_lock_request, b'{"mqSet":["x"]}'),
        (topic.decode_topic_config, b"7"),
        (topic.decode_topic_table, b'{"topicConfigTable":[]}'),
        (group.decode_group_table, b'{"subscriptionGroupTable":{"g":1}}'),
        (offset.decode_reset_offset, b'{"offsetTable":{"no queue":1}}'),
        (offset.decode_reset_offset, b'{"offsetTable":[1]}'),
        (admin.decode_consume_stats, b'{"consumeTps":"x"}'),
        (admin.decode_consume_stats, b'{"consumeTps":[]}'),
        (admin.decode_directly_result, b"{}"),
        (name_lists.decode_kv_table, b'{"table":{"a":{}}}'),
        (name_lists.decode_topic_list, b'{"topicList":[[]]}'),
    ],
)
def test_what_has_the_wrong_shape_is_a_protocol_error(decode, data):
    with pytest.raises(ProtocolError):
        decode(data)


def test_values_of_another_kind_are_converted_where_java_does():
    data = b'{"table":{"a":1,"b":true,"c":1.5,"d":"x"}}'
    assert name_lists.decode_kv_table(data) == {"a": "1", "b": "true", "c": "1.5", "d": "x"}
