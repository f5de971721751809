"""The command that looks at a whole cluster and says what is wrong and what to do.

Gathers (`client/admin/cluster_survey`), judges (`rules/diagnosis`), prints. Java: none.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from cometmq.cli.security_options import security_options
from cometmq.cli.shared_options import namesrv_option
from cometmq.client.admin.cluster_survey import ClusterSurvey
from cometmq.client.session.client_options import name_servers
from cometmq.rules.diagnosis.cluster_diagnosis import diagnose, is_well
from cometmq.rules.diagnosis.finding import Severity
from cometmq.runtime.system_clock_and_files import SystemClock
from cometmq.spark.connection_security import SECURITY_OPTIONS, security_of
from cometmq.spark.option_reader import OptionReader

if TYPE_CHECKING:
    from cometmq.rules.diagnosis.finding import ClusterFinding
    from cometmq.spark.connection_security import ConnectionSecurity

_LOOKS = 3
"""Looks at most: a group that divides its queues just now is well a moment later."""

_BETWEEN_LOOKS_S = 1.0


@click.command()
@namesrv_option
@security_options
@click.option(
    "--group",
    "groups",
    metavar="GROUP",
    multiple=True,
    help="Look at this consumer group; may be repeated.  [default: all that have members]",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 60), default=3.0, show_default=True,
    help="Longest wait for a connection and for an answer, seconds.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(
    ctx: click.Context,
    namesrv: str,
    options: dict[str, str],
    groups: tuple[str, ...],
    timeout_s: float,
    as_json: bool,
) -> None:
    """Look at a cluster as its clients see it, and say what is wrong and what to do.

    Asks the name servers, each broker at the address that clients are given, and the members of
    groups. Changes nothing. The exit code is 1 when something is wrong, 0 otherwise; notices, which
    may be on purpose, do not count. Works with Apache RocketMQ's servers and clients, too.
    """
    security = security_of(OptionReader(options, SECURITY_OPTIONS))
    addrs = name_servers(namesrv, {})
    findings = asyncio.run(_diagnose_cluster(addrs, groups, timeout_s, security))
    if as_json:
        table = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"well": is_well(findings), "findings": table}, indent=2))
    else:
        _print(findings)
    ctx.exit(0 if is_well(findings) else 1)


async def _diagnose_cluster(
    addrs: tuple[str, ...],
    groups: tuple[str, ...],
    timeout_s: float,
    security: ConnectionSecurity,
) -> list[ClusterFinding]:
    """Look again while only the owners of queues are wrong."""
    findings: list[ClusterFinding] = []
    tls = security.client_settings()["tls"]
    for turn in range(_LOOKS):
        if turn:
            await asyncio.sleep(_BETWEEN_LOOKS_S)
        survey = ClusterSurvey(
            addrs,
            groups=groups,
            timeout_s=timeout_s,
            now_ms=SystemClock().now_ms,
            credentials=security.credentials,
            tls=tls,
        )
        findings = diagnose(await survey.take())
        if not any(one.check == "queue owners" for one in findings):
            break
    return findings


def _print(findings: list[ClusterFinding]) -> None:
    width = max((len(one.severity) for one in findings), default=0)
    for one in findings:
        click.echo(f"{one.severity.upper():<{width}}  {one.check}  {one.subject}: {one.what}")
        if one.advice:
            click.echo(f"{'':<{width}}  do: {one.advice}")
    faults = sum(one.severity is Severity.FAULT for one in findings)
    click.echo(
        "nothing is wrong" if not faults else f"{faults} faults" if faults > 1 else "1 fault"
    )
