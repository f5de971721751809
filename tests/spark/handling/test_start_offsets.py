"""Where a query without checkpoint begins: where a push consumer of the group would."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from client.short_delay_cluster import until
from cometmq import Admin, PushConsumer
from cometmq.errors import BrokerAway, RemotingError
from cometmq.spark.handling.handler_settings import consumer_settings
from cometmq.spark.handling.listen import prepare
from cometmq.spark.handling.start_offsets import start_offsets
from spark.streams import texts

if TYPE_CHECKING:
    from spark.live import Live

pytestmark = pytest.mark.spark
_numbers = count()


def starts(live: Live, group: str, topic: str, **settings: Any) -> dict[str, dict[str, int]]:
    client, options = consumer_settings(group, {"namesrv": live.namesrv, **settings})
    text = start_offsets(client, options, topic, retry_for_s=5.0)
    found: dict[str, dict[str, int]] = json.loads(text)
    return found


def test_a_group_goes_on_where_its_push_consumer_ended(live: Live, topic: str) -> None:
    group, seen = f"movers{next(_numbers)}", []
    live.send(topic, 0, texts(30))
    consumer = PushConsumer(group, namesrv=live.namesrv, consume_from="first")
    consumer.subscribe(topic, "*", seen.extend)
    with consumer:
        until(lambda: len(seen) == 30)
    live.send(topic, 0, texts(5))
    found = starts(live, group, topic, consume_from="last")
    assert list(found[topic].values()) == [30, -2]
    assert list(found[f"%RETRY%{group}"].values()) == [-2]


def test_a_new_group_begins_where_it_says(live: Live, topic: str) -> None:
    live.send(topic, 0, texts(10))
    time.sleep(0.01)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    live.send(topic, 0, texts(10))
    with Admin(namesrv=live.namesrv) as admin:
        (first, _) = sorted(admin.topic_stats(topic))
    other = f"movers{next(_numbers)}"
    assert set(starts(live, other, topic, consume_from="first")[topic].values()) == {-2}
    at_time = starts(live, other, topic, consume_from="timestamp", consume_timestamp_ms=between_ms)
    assert at_time[topic][f"{first.broker_name}:0"] == 10
    assert starts(live, other, "NoSuchTopic") == {}


def test_name_servers_that_do_not_answer_are_an_error(unused_port: int) -> None:
    client, options = consumer_settings("movers", {"namesrv": f"127.0.0.1:{unused_port}"})
    with pytest.raises(RemotingError):
        start_offsets(client, options, "T", retry_for_s=0.0)


def test_a_broker_that_is_named_is_waited_for_since_it_has_the_offsets_of_the_group(
    live: Live, topic: str
) -> None:
    with Admin(namesrv=live.namesrv) as admin:
        (here,) = admin.clusters().broker_addr_table
    source = {"retryForMs": "0", "brokers": f"{here},broker-x"}
    with pytest.raises(BrokerAway, match="broker broker-x is away, which knows how far the group"):
        prepare("movers", topic, "*", print, source, 60.0, namesrv=live.namesrv)
    source["brokers"] = here
    _, read = prepare("movers", topic, "*", print, source, 60.0, namesrv=live.namesrv)
    assert here in read["startingOffsets"]


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
