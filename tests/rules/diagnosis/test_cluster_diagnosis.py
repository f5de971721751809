"""All checks together: their order, what could not be read or looked at, and the verdict."""

from __future__ import annotations

from cometmq.model.cluster_facts import ClusterFacts
from cometmq.rules.diagnosis.cluster_diagnosis import diagnose, is_well
from cometmq.rules.diagnosis.finding import fault, notice, ok
from rules.diagnosis.cluster_examples import broker, group, member, name_server, route, said


def test_a_cluster_without_faults_is_said_to_be_well_check_by_check() -> None:
    facts = ClusterFacts(
        name_servers=(name_server("n:9876", "b", "a"),),
        brokers=(broker({"commitLogDiskRatio": "0.85"}),),
        routes={"T": route()},
        groups=(group(member("x", 0), member("y", 1)),),
    )
    found = diagnose(facts)
    assert [tuple(one) for one in found] == [
        ("name server", "ok", "n:9876", "it answers and knows a, b", ""),
        ("broker", "ok", "a at 10.0.0.1:10911", "it answers, version V5_5_0", ""),
        ("disk", "ok", "a at 10.0.0.1:10911", "85 % of its disk are used", ""),
        ("group", "ok", "g", "2 members, equal; each queue has an owner", ""),
    ]
    assert is_well(found)


def test_answers_that_cannot_be_read_are_faults() -> None:
    (found,) = said(unreadable=(("n:1", "28 holds no table"),))
    advice = "see the version and the log of that server: it does not answer as RocketMQ does"
    assert found == ("fault", "answer", "n:1", "28 holds no table", advice)


def test_what_was_left_out_is_a_notice() -> None:
    (found,) = said(left_out=("90 more groups",))
    advice = "name the groups to look at with --group"
    assert found == ("notice", "extent", "this look", "90 more groups", advice)


def test_only_faults_make_a_cluster_unwell() -> None:
    assert is_well([ok("c", "s", "w"), notice("c", "s", "w", "a")])
    assert not is_well([ok("c", "s", "w"), fault("c", "s", "w", "a")])
