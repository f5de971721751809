"""All checks of a cluster, from facts to findings. Asks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.rules.diagnosis.finding import Severity, fault, notice
from cometmq.rules.diagnosis.group_checks import check_groups, check_topics, check_writes
from cometmq.rules.diagnosis.server_checks import check_brokers, check_name_servers

if TYPE_CHECKING:
    from cometmq.model.cluster_facts import ClusterFacts
    from cometmq.rules.diagnosis.finding import ClusterFinding


def diagnose(facts: ClusterFacts) -> list[ClusterFinding]:
    """Judge the facts: all findings, those that are well included, in the order of the checks."""
    found = [
        finding
        for check in (check_name_servers, check_brokers, check_writes, check_topics, check_groups)
        for finding in check(facts)
    ]
    advice = "see the version and the log of that server: it does not answer as RocketMQ does"
    found += [fault("answer", addr, what, advice) for addr, what in facts.unreadable]
    advice = "name the groups to look at with --group"
    return found + [notice("extent", "this look", what, advice) for what in facts.left_out]


def is_well(findings: list[ClusterFinding]) -> bool:
    """Whether no finding is a fault."""
    return all(one.severity is not Severity.FAULT for one in findings)
