"""What only one broker obeys, kept by the other: the mark of global order, groups' filters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker.commands import pull_header
from cometmq import Admin
from cometmq.model.subscription import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.bodies.heartbeat import encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import CreateTopicRequestHeader
from interop.apache import ApacheCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
MARK = {"message.type": "FIFO", "comet.order": "global"}


def topics(store: Path) -> dict[str, dict[str, object]]:
    table = json.loads((store / "config" / "topics.json").read_text())
    return dict(table["topicConfigTable"])


def filters(store: Path) -> dict[str, dict[str, object]]:
    table = json.loads((store / "config" / "consumerFilter.json").read_text())
    return dict(table["filterDataByTopic"]["Ledger"]["groupFilterData"])


def test_marks_and_filters_outlive_a_broker_of_apaches(apache_jars: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    wanted = SubscriptionData(
        topic="Ledger", sub_string="a = 1", sub_version=7, expression_type="SQL92"
    )
    beat = HeartbeatData(
        client_id="c", consumers=(ConsumerData(group_name="clerks", subscriptions=(wanted,)),)
    )
    with LocalCluster(store, enablePropertyFilter="true") as ours:
        with Admin(namesrv=ours.namesrv) as admin:
            admin.create_ordered_topic("Ledger", groups=["clerks"])
        pull = pull_header("Ledger", consumer_group="clerks", sub_version=7, sys_flag=0)
        pull.subscription = pull.expression_type = None  # that of its heartbeat counts
        with BlockingChannel(ours.broker, 5.0) as channel:
            channel.call(RequestCode.HEART_BEAT, None, encode_heartbeat(beat))
            assert channel.call(RequestCode.PULL_MESSAGE, pull).code == 19
    assert topics(store)["Ledger"]["attributes"] == MARK
    (left,) = filters(store).values()

    apache = ApacheCluster(apache_jars, tmp_path, enablePropertyFilter="true")
    try:
        header = CreateTopicRequestHeader(
            topic="Ledger", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=4
        )
        with BlockingChannel(apache.broker, 5.0) as channel:
            assert channel.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    finally:
        apache.stop()
    assert (topics(store)["Ledger"]["perm"], topics(store)["Ledger"]["attributes"]) == (4, MARK)
    assert filters(store) == {"clerks": left}
