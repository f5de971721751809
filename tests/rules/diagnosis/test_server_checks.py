"""What the doctor says of name servers and brokers, word for word, Apache's answers among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cometmq.model.cluster_facts import NameServerFacts, Reachability
from rules.diagnosis.cluster_examples import (
    BROKER,
    NOW_MS,
    broker,
    broker_at,
    findings,
    name_server,
    said,
    server,
)

SUBJECT = f"a at {BROKER}"
NOT_REACHED = {
    Reachability.BAD_ADDRESS: ("host:port", "brokerIP1 and listenPort"),
    Reachability.UNRESOLVED: ("DNS or /etc/hosts", "that clients can resolve"),
    Reachability.REFUSED: ("start the name server (cometmq namesrv)", "if the broker is dead"),
    Reachability.UNREACHABLE: ("network and firewall", "or open the firewall"),
    Reachability.SILENT: ("its process hangs or is stopped", "hangs, is stopped or overloaded"),
    Reachability.OTHER_PROTOCOL: ("give the address of a name server", "something else listens"),
}


@pytest.mark.parametrize("reachability", NOT_REACHED)
def test_a_server_that_is_not_reached_is_named_with_what_to_do(reachability: Reachability) -> None:
    lost = server(BROKER, reachability=reachability, problem="as found")
    found = said(name_servers=(NameServerFacts(server=lost),), brokers=(broker_at(lost, None),))
    assert [one[:4] for one in found] == [
        ("fault", "name server", BROKER, "as found"),
        ("fault", "broker", SUBJECT, "as found"),
    ]
    for one, words in zip(found, NOT_REACHED[reachability], strict=True):
        assert words in one[4]


def test_a_server_at_a_name_servers_address_that_is_none_is_a_fault() -> None:
    answers = NameServerFacts(server=server("n:1", is_broker=True))
    refuses = NameServerFacts(server=server("n:2", refusal="code 3: what is that?"))
    broker_there, other = said(name_servers=(answers, refuses))
    assert broker_there == (
        *("fault", "name server", "n:1", "it is a broker, no name server"),
        "give the address of the broker's name server; its usual port is 9876",
    )
    assert other == (
        *("fault", "name server", "n:2"),
        "it does not answer as a name server: code 3: what is that?",
        "give the address of a name server; its usual port is 9876",
    )


def test_a_name_server_without_brokers_is_a_fault() -> None:
    (found,) = said(name_servers=(name_server("n:9876"),))
    assert found == (
        *("fault", "name server", "n:9876", "it answers, but no broker is registered with it"),
        "start a broker with -n n:9876, or correct namesrvAddr of the brokers that run",
    )


def test_a_broker_that_some_name_servers_do_not_know_is_named_with_its_address() -> None:
    servers = [name_server("n:3", "a"), name_server("n:1", "a", "b"), name_server("n:2", "a")]
    servers.append(NameServerFacts(server=server("n:4", is_broker=True)))  # it knows none
    found = said(name_servers=tuple(servers))
    assert found[4:] == [
        (
            *("fault", "name server", f"b at {BROKER}"),
            "it is not registered with n:2, n:3, though with others",
            "name all name servers in its namesrvAddr; see its log for refusals",
        )
    ]


@pytest.mark.parametrize(
    "addr", ["0.0.0.0:10911", "[::]:10911", ":10911", "10.0.0.1:0", "[fd00::1]:0"]
)
def test_a_broker_at_an_address_for_listening_is_a_fault(addr: str) -> None:
    (found,) = said(brokers=(broker_at(server(addr), {}),))
    assert found[:4] == (
        *("fault", "broker", f"a at {addr}"),
        "it is registered at an address that no client can connect to",
    )
    assert found[4] == "set brokerIP1 and listenPort of the broker to where it is reached"


def test_what_listens_at_a_brokers_address_is_named_when_it_is_not_that_broker() -> None:
    advice = "correct brokerIP1 and listenPort of the broker: something else listens there"
    (found,) = said(brokers=(broker_at(server(BROKER, is_name_server=True), {}),))
    what = "a name server listens at the address that clients are given for it"
    assert found == ("fault", "broker", SUBJECT, what, advice)
    (found,) = said(brokers=(broker_at(server(BROKER, refusal="code 3"), None),))
    what = "what listens there does not answer as a broker: code 3"
    assert found == ("fault", "broker", SUBJECT, what, advice)
    (found,) = said(brokers=(broker({}, brokerName="z"),))
    what = "the broker z listens at the address that clients are given for it"
    assert found == ("fault", "broker", SUBJECT, what, "correct brokerIP1 and listenPort of a")


def test_a_broker_that_answers_is_well_with_its_version() -> None:
    (found,) = said(brokers=(broker({}, brokerName="a"),))
    assert found == ("ok", "broker", SUBJECT, "it answers, version V5_5_0", "")
    silent = replace(broker({}), runtime={"bootTimestamp": "x"})
    assert said(brokers=(silent,))[0][3] == "it answers, version unknown"


@pytest.mark.parametrize(
    ("uptime", "ms", "what"),
    [
        ("[ 0 days, 1 hours, 0 minutes, 0 seconds ]", 3_600_000, ""),
        (
            "[ 1,024 days, 2 hours, 3 minutes, 4 seconds ]",
            (1_024 * 24 + 2) * 3_600_000 + 184_000,
            "",
        ),
        ("[ 0 days, 0 hours, 0 minutes, 9 seconds ]", 4_500, ""),
        ("[ 0 days, 0 hours, 0 minutes, 9 seconds ]", 4_499, "5 s ahead of"),
        ("[ 0 days, 0 hours, 0 minutes, 9 seconds ]", 14_500, ""),
        ("[ 0 days, 0 hours, 0 minutes, 9 seconds ]", 14_501, "5 s behind"),
        ("[ 0 days, 0 hours, 0 minutes, 30 seconds ]", 60_000, "30 s behind"),
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", 0, "60 s ahead of"),
    ],
)
def test_a_brokers_clock_is_its_boot_time_and_how_long_it_runs(
    uptime: str, ms: int, what: str
) -> None:
    found = said(brokers=(broker({"runtime": uptime, "bootTimestamp": str(NOW_MS - ms)}),))[1]
    if not what:
        agrees = "it agrees with the clock of this machine"
        assert found == ("ok", "clock", SUBJECT, agrees, "")
        return
    assert found == (
        *("fault", "clock", SUBJECT, f"its clock is {what} the one of this machine"),
        "let NTP set both clocks: store times, retention and searches by time go by the broker's",
    )


@pytest.mark.parametrize(
    "runtime",
    [
        {"runtime": "unknown", "bootTimestamp": "0"},
        {"runtime": "[ 0 days, 0 hours, 1 minutes, 0 seconds ]", "bootTimestamp": "unknown"},
        {"runtime": "[ 0 days, 0 hours, 1 minutes, 0 seconds ]"},
    ],
)
def test_nothing_is_said_of_a_clock_that_is_not_reported(runtime: dict[str, str]) -> None:
    assert [one[1] for one in said(brokers=(broker(runtime),))] == ["broker"]


def test_the_fullest_of_several_disks_counts() -> None:
    ratios = {"commitLogDiskRatio": "0.4", "commitLogDiskRatio_/b": "0.91", "bootRatio": "0.99"}
    ((check, what),) = findings(broker(ratios))
    assert (check, what.startswith("91 %")) == ("disk", True)
    ((_, what),) = findings(broker({**ratios, "consumeQueueDiskRatio": "0.92"}))
    assert what.startswith("92 %")


def test_a_disk_with_room_is_well_and_nothing_is_said_of_an_unknown_one() -> None:
    found = said(brokers=(broker({"commitLogDiskRatio": "0.85"}),))
    assert found[1:] == [("ok", "disk", SUBJECT, "85 % of its disk are used", "")]
    found = said(brokers=(broker({"commitLogDiskRatio": "0", "consumeQueueDiskRatio": "x"}),))
    assert found[1:] == [("ok", "disk", SUBJECT, "0 % of its disk are used", "")]
    unknown = broker({"commitLogDiskRatio": "-1.0", "consumeQueueDiskRatio": "x"})
    assert [one[1] for one in said(brokers=(unknown,))] == ["broker"]


@pytest.mark.parametrize(
    ("runtime", "config", "room", "where"),
    [
        ({}, {}, "it refuses sends when it is full", "its store"),
        ({}, {"storePathRootDir": "/a"}, "it refuses sends when it is full", "/a"),
        (
            {"commitLogDirCapacity": "Total : 10 GiB, Free : 1 GiB."},
            {"storePathRootDir": "/a", "storePathCommitLog": "/b"},
            "Total : 10 GiB, Free : 1 GiB.",
            "/b",
        ),
    ],
)
def test_a_disk_that_is_nearly_full_is_named_with_its_room_and_place(
    runtime: dict[str, str], config: dict[str, str], room: str, where: str
) -> None:
    found = said(brokers=(broker({"commitLogDiskRatio": "0.86", **runtime}, **config),))[1]
    assert found == (
        *("fault", "disk", SUBJECT, f"86 % of its disk are used; {room}"),
        f"make room on the disk of {where}, or lower fileReservedTime: old files are deleted early "
        "now, and sends are refused when it is full",
    )


def test_brokers_of_different_versions_are_a_notice() -> None:
    others = [broker({"brokerVersionDesc": "V4_9_4"}), broker_at(server(BROKER), None)]
    found = said(brokers=(broker({}), broker({}), *others))
    assert found[-1] == (
        *("notice", "version", "brokers"),
        "they are of different versions: V5_5_0: a, a; V4_9_4: a",
        "bring them to one version when you can; clients use what the oldest knows",
    )
    assert "version" not in [one[1] for one in said(brokers=(broker({}), broker({})))]
