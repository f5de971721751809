"""Facts of small clusters, and what the doctor says of them."""

from __future__ import annotations

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
from cometmq.model.subscription import SubscriptionData
from cometmq.rules.diagnosis.cluster_diagnosis import diagnose

NOW_MS = 1_700_000_000_000
BROKER = "10.0.0.1:10911"


def route(queues: int = 2, **perms: int) -> TopicRouteData:
    """A topic on brokers with these permissions, on broker `a` where none is given."""
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
            for name, perm in (perms or {"a": 6}).items()
        )
    )


def server(addr: str, **more: object) -> ServerFacts:
    return ServerFacts(**{"addr": addr, "reachability": Reachability.ANSWERS, **more})  # type: ignore[arg-type]


def name_server(addr: str, *brokers: str) -> NameServerFacts:
    table = {
        name: BrokerData(cluster="C", broker_name=name, broker_addrs={0: BROKER})
        for name in brokers
    }
    known = ClusterInfo(broker_addr_table=table)
    return NameServerFacts(server=server(addr, is_name_server=True), clusters=known)


def broker(runtime: dict[str, str], **config: str) -> BrokerFacts:
    return broker_at(server(BROKER, is_broker=True), runtime, **config)


def broker_at(found: ServerFacts, runtime: dict[str, str] | None, **config: str) -> BrokerFacts:
    """A broker by what its address answered; `runtime` None: not as a broker."""
    return BrokerFacts(
        cluster="C",
        broker_name="a",
        broker_id=0,
        server=found,
        runtime={} if runtime is None else {"brokerVersionDesc": "V5_5_0", **runtime},
        config=config,
        asked_ms=NOW_MS,
    )


def member(
    client_id: str, *queues: int, order: str = "false", tags: str = "*", of: str = "T"
) -> MemberFacts:
    """A member that subscribes T and holds queues of topic `of` on broker `a`."""
    return MemberFacts(
        client_id=client_id,
        info=ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": order},
            subscriptions=(
                SubscriptionData(topic="T", sub_string=tags),
                SubscriptionData(topic="%RETRY%g"),
            ),
            mq_table={MessageQueue(of, "a", number): ProcessQueueInfo() for number in queues},
        ),
    )


def group(*members: MemberFacts, **more: object) -> GroupFacts:
    return GroupFacts(group="g", members=members, **more)  # type: ignore[arg-type]


def said(**facts: object) -> list[tuple[str, ...]]:
    """Severity, check, subject, what and advice of all findings."""
    found = diagnose(ClusterFacts(**{"name_servers": (), **facts}))  # type: ignore[arg-type]
    return [(one.severity.value, one.check, one.subject, one.what, one.advice) for one in found]


def findings(*brokers: BrokerFacts, group: GroupFacts | None = None) -> list[tuple[str, str]]:
    """Check and what of the findings that are not well, of a cluster where the rest is."""
    found = said(
        name_servers=(name_server("n:9876", "a"),),
        brokers=brokers,
        routes={"T": route()},
        groups=(group,) if group else (),
    )
    return [(check, what) for severity, check, _, what, _ in found if severity != "ok"]
