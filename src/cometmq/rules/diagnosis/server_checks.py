"""Checks of name servers and brokers: reachable, the right kind, clocks, disks, versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cometmq.model.cluster_facts import Reachability
from cometmq.rules.diagnosis.finding import fault, notice, ok

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.model.cluster_facts import BrokerFacts, ClusterFacts, NameServerFacts
    from cometmq.rules.diagnosis.finding import ClusterFinding

SKEW_MAX_MS = 5_000
"""Difference of clocks that is no fault; brokers report theirs to the second."""

DISK_USED_MAX = 0.85
"""Share of a disk in use beyond which brokers delete files early and soon refuse sends."""

_NOWHERE = ("0.0.0.0", "::", "")
_UPTIME = re.compile(r"([\d,.]+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")

_NAME_SERVER_ADVICE = {
    Reachability.BAD_ADDRESS: "write host:port, several joined by ';'",
    Reachability.UNRESOLVED: "correct the name, or let DNS or /etc/hosts know it",
    Reachability.REFUSED: "start the name server (cometmq namesrv), or give the host and port that "
    "it listens on; its usual port is 9876",
    Reachability.UNREACHABLE: "check network and firewall between here and there",
    Reachability.SILENT: "see whether its process hangs or is stopped, and start it again",
    Reachability.OTHER_PROTOCOL: "give the address of a name server; its usual port is 9876",
}
_BROKER_ADVICE = {
    Reachability.BAD_ADDRESS: "set brokerIP1 and listenPort of the broker to where it is reached",
    Reachability.UNRESOLVED: "set brokerIP1 of the broker to an address that clients can resolve",
    Reachability.REFUSED: "if the broker is dead, start it (name servers forget it after two "
    "minutes); if it runs, correct its brokerIP1 and listenPort: clients go where they say",
    Reachability.UNREACHABLE: "set brokerIP1 of the broker to one of its addresses that is reached "
    "from here, or open the firewall",
    Reachability.SILENT: "see whether its process hangs, is stopped or overloaded, and start it "
    "again",
    Reachability.OTHER_PROTOCOL: "correct brokerIP1 and listenPort of the broker: something else "
    "listens there",
}


def check_name_servers(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Each name server that was given: reached, a name server, with brokers, the same as others."""
    for one in facts.name_servers:
        yield _name_server(one)
    yield from _differences(facts.name_servers)


def _name_server(one: NameServerFacts) -> ClusterFinding:
    check, server = "name server", one.server
    addr = server.addr
    if server.reachability is not Reachability.ANSWERS:
        return fault(check, addr, server.problem, _NAME_SERVER_ADVICE[server.reachability])
    if one.clusters is None:
        if server.is_broker:
            what = "it is a broker, no name server"
            advice = "give the address of the broker's name server; its usual port is 9876"
            return fault(check, addr, what, advice)
        return fault(
            check,
            addr,
            f"it does not answer as a name server: {server.refusal}",
            _NAME_SERVER_ADVICE[Reachability.OTHER_PROTOCOL],
        )
    names = sorted(one.clusters.broker_addr_table)
    if not names:
        advice = f"start a broker with -n {addr}, or correct namesrvAddr of the brokers that run"
        return fault(check, addr, "it answers, but no broker is registered with it", advice)
    return ok(check, addr, f"it answers and knows {', '.join(names)}")


def _differences(servers: tuple[NameServerFacts, ...]) -> Iterator[ClusterFinding]:
    """Brokers that some of the name servers do not know."""
    tables = {
        one.server.addr: {
            (name, addr)
            for name, data in one.clusters.broker_addr_table.items()
            for addr in data.broker_addrs.values()
        }
        for one in servers
        if one.clusters is not None
    }
    for name, addr in sorted(set().union(*tables.values())):
        missing = sorted(server for server, known in tables.items() if (name, addr) not in known)
        if missing:
            what = f"it is not registered with {', '.join(missing)}, though with others"
            advice = "name all name servers in its namesrvAddr; see its log for refusals"
            yield fault("name server", f"{name} at {addr}", what, advice)


def check_brokers(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Each broker at the address that clients are given."""
    for one in facts.brokers:
        yield _broker(one)
        if one.runtime:
            yield from _clock(one)
            yield from _disk(one)
    yield from _versions(facts)


def _subject(one: BrokerFacts) -> str:
    return f"{one.broker_name} at {one.server.addr}"


def _broker(one: BrokerFacts) -> ClusterFinding:
    check, subject, server = "broker", _subject(one), one.server
    host, _, port = server.addr.rpartition(":")
    if host.strip("[]") in _NOWHERE or port == "0":
        what = "it is registered at an address that no client can connect to"
        return fault(check, subject, what, _BROKER_ADVICE[Reachability.BAD_ADDRESS])
    if server.reachability is not Reachability.ANSWERS:
        return fault(check, subject, server.problem, _BROKER_ADVICE[server.reachability])
    if server.is_name_server:
        what = "a name server listens at the address that clients are given for it"
        return fault(check, subject, what, _BROKER_ADVICE[Reachability.OTHER_PROTOCOL])
    if not one.runtime:
        what = f"what listens there does not answer as a broker: {server.refusal}"
        return fault(check, subject, what, _BROKER_ADVICE[Reachability.OTHER_PROTOCOL])
    found = one.config.get("brokerName", one.broker_name)
    if found != one.broker_name:
        what = f"the broker {found} listens at the address that clients are given for it"
        advice = f"correct brokerIP1 and listenPort of {one.broker_name}"
        return fault(check, subject, what, advice)
    return ok(check, subject, f"it answers, version {_version(one)}")


def _version(one: BrokerFacts) -> str:
    return one.runtime.get("brokerVersionDesc", "unknown")


def _clock(one: BrokerFacts) -> Iterator[ClusterFinding]:
    """The broker's clock is its boot time and how long it runs: both are in what it reports."""
    uptime = _UPTIME.search(one.runtime.get("runtime", ""))
    boot_ms = one.runtime.get("bootTimestamp", "")
    if uptime is None or not boot_ms.isdecimal():
        return
    numbers = [int(re.sub(r"\D", "", each)) for each in uptime.groups()]  # Java: "1,024 days"
    days, hours, minutes, seconds = numbers
    uptime_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    skew_ms = int(boot_ms) + uptime_s * 1000 + 500 - one.asked_ms  # whole seconds: half on average
    if abs(skew_ms) <= SKEW_MAX_MS:
        yield ok("clock", _subject(one), "it agrees with the clock of this machine")
        return
    word = "ahead of" if skew_ms > 0 else "behind"
    yield fault(
        "clock",
        _subject(one),
        f"its clock is {abs(skew_ms) / 1000:.0f} s {word} the one of this machine",
        "let NTP set both clocks: store times, retention and searches by time go by the broker's",
    )


def _disk(one: BrokerFacts) -> Iterator[ClusterFinding]:
    ratios = [
        _number(value)
        for key, value in one.runtime.items()
        if key.startswith("commitLogDiskRatio") or key == "consumeQueueDiskRatio"
    ]
    used = max(ratios, default=-1.0)
    if used < 0:
        return
    percent, room = f"{used * 100:.0f} %", one.runtime.get("commitLogDirCapacity")
    if used <= DISK_USED_MAX:
        yield ok("disk", _subject(one), f"{percent} of its disk are used")
        return
    where = (
        one.config.get("storePathCommitLog") or one.config.get("storePathRootDir") or "its store"
    )
    yield fault(
        "disk",
        _subject(one),
        f"{percent} of its disk are used; {room or 'it refuses sends when it is full'}",
        f"make room on the disk of {where}, or lower fileReservedTime: old files are deleted early "
        "now, and sends are refused when it is full",
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _versions(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    found: dict[str, list[str]] = {}
    for one in facts.brokers:
        if one.runtime:
            found.setdefault(_version(one), []).append(one.broker_name)
    if len(found) > 1:
        what = "; ".join(f"{version}: {', '.join(names)}" for version, names in found.items())
        yield notice(
            "version",
            "brokers",
            f"they are of different versions: {what}",
            "bring them to one version when you can; clients use what the oldest knows",
        )
