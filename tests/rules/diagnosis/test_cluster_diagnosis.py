"""Findings from facts alone: the corners that are hard to plant, answers of Apache's among them."""

from __future__ import annotations

import pytest

from cometmq.model.admin_stats import ConsumerRunningInfo, ProcessQueueInfo
from cometmq.model.cluster_facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    Reachability,
    ServerFacts,
)
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.model.subscription import MessageModel, SubscriptionData
from cometmq.rules.diagnosis.cluster_diagnosis import diagnose, is_well

NOW_MS = 1_700_000_000_000
BROKER = "10.0.0.1:10911"
ROUTE = TopicRouteData(
    queue_datas=(QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2, perm=6),)
)


def server(addr: str, **more: object) -> ServerFacts:
    return ServerFacts(addr=addr, reachability=Reachability.ANSWERS, **more)  # type: ignore[arg-type]


def broker(runtime: dict[str, str], **config: str) -> BrokerFacts:
    return BrokerFacts(
        cluster="C",
        broker_name="a",
        broker_id=0,
        server=server(BROKER, is_broker=True),
        runtime={"brokerVersionDesc": "V5_5_0", **runtime},
        config=config,
        asked_ms=NOW_MS,
    )


def member(client_id: str, *queues: int, order: str = "false", tags: str = "*") -> MemberFacts:
    return MemberFacts(
        client_id=client_id,
        info=ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": order},
            subscriptions=(
                SubscriptionData(topic="T", sub_string=tags),
                SubscriptionData(topic="%RETRY%g"),
            ),
            mq_table={MessageQueue("T", "a", number): ProcessQueueInfo() for number in queues},
        ),
    )


def findings(*brokers: BrokerFacts, group: GroupFacts | None = None) -> list[tuple[str, str]]:
    known = ClusterInfo(
        broker_addr_table={"a": BrokerData(cluster="C", broker_name="a", broker_addrs={0: BROKER})}
    )
    facts = ClusterFacts(
        name_servers=(
            NameServerFacts(server=server("n:9876", is_name_server=True), clusters=known),
        ),
        brokers=brokers,
        routes={"T": ROUTE},
        groups=(group,) if group else (),
    )
    return [(one.check, one.what) for one in diagnose(facts) if one.severity != "ok"]


def group(*members: MemberFacts, **more: object) -> GroupFacts:
    return GroupFacts(group="g", members=members, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uptime", "ms", "said"),
    [
        ("[ 0 days, 1 hours, 0 minutes, 0 seconds ]", 3_600_000, ""),
        ("[ 1,024 days, 0 hours, 0 minutes, 1 seconds ]", 1_024 * 86_400_000 + 1_000, ""),
        ("[ 0 days, 0 hours, 0 minutes, 30 seconds ]", 60_000, "30 s behind"),
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", 0, "60 s ahead of"),
        ("unknown", 0, ""),
    ],
)
def test_a_brokers_clock_is_its_boot_time_and_how_long_it_runs(
    uptime: str, ms: int, said: str
) -> None:
    found = findings(broker({"runtime": uptime, "bootTimestamp": str(NOW_MS - ms)}))
    assert [check for check, _ in found] == (["clock"] if said else [])
    assert all(said in what for _, what in found)


def test_the_fullest_of_several_disks_counts() -> None:
    ratios = {"commitLogDiskRatio": "0.4", "commitLogDiskRatio_/b": "0.91"}
    ((check, what),) = findings(broker(ratios))
    assert (check, what.startswith("91 %")) == ("disk", True)
    assert not findings(broker({"commitLogDiskRatio": "-1.0", "consumeQueueDiskRatio": "x"}))


def test_brokers_of_different_versions_are_a_notice() -> None:
    ((check, what),) = findings(broker({}), broker({"brokerVersionDesc": "V4_9_4"}))
    assert (check, "V4_9_4: a" in what) == ("version", True)


def test_members_that_share_the_queues_are_well() -> None:
    assert not findings(group=group(member("x", 0), member("y", 1)))


def test_orderly_and_concurrent_members_are_named() -> None:
    both = group(member("x", 0, order="true"), member("y", 1))
    what = "its members differ: x consumes in order, y concurrently"
    assert findings(group=both) == [("subscriptions", what)]


def test_each_kind_of_member_that_differs_from_the_first_is_named_once() -> None:
    tags = (("w", "A"), ("x", "A"), ("y", "B"), ("z", "B"))
    members = [member(name, at % 2, tags=text) for at, (name, text) in enumerate(tags)]
    found = [what for check, what in findings(group=group(*members)) if check == "subscriptions"]
    assert found == ["its members differ: of topic T w wants 'A', y 'B'"]


def test_a_queue_with_two_owners_is_named() -> None:
    ((check, what),) = findings(group=group(member("x", 0, 1), member("y", 1)))
    assert (check, what) == ("queue owners", "queue a:1 of T have more than one owner: x, y")


def test_members_that_broadcast_each_have_all_queues() -> None:
    all_of_them = group(
        member("x", 0, 1), member("y", 0, 1), message_model=MessageModel.BROADCASTING
    )
    assert not findings(group=all_of_them)


def test_nothing_is_said_of_owners_while_a_member_does_not_answer() -> None:
    silent = MemberFacts(client_id="y", problem="no answer within 3 s")
    ((check, what),) = findings(group=group(member("x", 0), silent))
    assert (check, "y did not say" in what) == ("group", True)


def test_a_topic_that_nobody_knows_is_named_with_the_group_that_waits() -> None:
    facts = ClusterFacts(name_servers=(), groups=(group(member("x")),))
    found = diagnose(facts)
    assert [(one.check, one.subject) for one in found] == [("topic", "T"), ("group", "g")]
    assert not is_well(found)
