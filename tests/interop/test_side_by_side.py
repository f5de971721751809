"""Apache RocketMQ 5.5.0 and ours side by side: raw requests, clients in all pairings, mqadmin.

Every difference needs a reviewed reason (tests/interop/side_by_side/reasons). With
COMETMQ_WRITE=1, as `make interop` sets it, the run writes docs/design/apache-side-by-side.md and
the recording that tests/replay goes through.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.side_by_side import compare, mqadmin, raw, scenario, side_by_side_page, traffic_shapes
from interop.side_by_side.reasons import Difference, Reasons
from interop.side_by_side.recording_proxy import Heard, Tap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "apache-side-by-side.md"
RECORDING = ROOT / "tests" / "replay" / "recorded" / "apache-5.5.0.jsonl"
WRITES = os.environ.get("COMETMQ_WRITE") == "1"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CHECK_MS = 600_000


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, list[str]]]:
    """Collects the parts of the page, each once it is judged; written when all are there."""
    commit = subprocess.run(  # before the recording is written anew
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    parts: dict[str, list[str]] = {}
    yield parts
    if WRITES and len(parts) == 3:
        PAGE.write_text(side_by_side_page.scrubbed(_page(parts, commit)))


@contextmanager
def running(
    side: str, jars: Path, folder: Path, **settings: object
) -> Iterator[ApacheCluster | LocalCluster]:
    """One side with a name server and a broker of the same settings."""
    if side == "ours":
        with LocalCluster(
            folder / "ours", apart=True, brokerName="broker-a", **settings
        ) as cluster:
            yield cluster
        return
    given = {"brokerName": "broker-a", "messageDelayLevel": LEVELS, **settings}
    apache = ApacheCluster(jars, folder / "apache", **given)
    try:
        yield apache
    finally:
        apache.stop()


def judge(found: Iterable[list[Difference]], reasons: Reasons) -> None:
    """Fail for a difference without a reason, and for a reason without a difference."""
    odd = [str(each) for some in found for each in some if reasons.of(each) is None]
    assert not odd, f"{len(odd)} differences without a reason:\n" + "\n".join(odd)
    assert not reasons.unused, "\n".join(reasons.unused)


def test_the_same_requests_are_answered_alike(
    apache_jars: Path, tmp_path: Path, page: dict[str, list[str]]
) -> None:
    reasons = Reasons("raw.txt")
    with running("apache", apache_jars, tmp_path, transactionCheckInterval=CHECK_MS) as apache:
        theirs = raw.run(apache.namesrv, apache.broker)
    with running("ours", apache_jars, tmp_path, transactionCheckInterval=CHECK_MS) as ours:
        exchanges = raw.run(ours.namesrv, ours.broker).exchanges
    found = compare.differences(theirs.exchanges, exchanges)
    judge(found.values(), reasons)
    page["requests"] = side_by_side_page.requests(theirs.exchanges, found, reasons)
    if WRITES:
        raw.write(theirs, RECORDING, tmp_path)


def test_java_and_our_client_work_with_both_brokers(
    apache_jars: Path, java: JavaHost, tmp_path: Path, page: dict[str, list[str]]
) -> None:
    heard: dict[tuple[str, str], list[Heard]] = {}
    said: dict[tuple[str, str], Sequence[tuple[str, str]]] = {}
    for side in ("apache", "ours"):
        quick = {"transactionCheckInterval": 3000, "transactionTimeOut": 1000}
        with running(side, apache_jars, tmp_path, **quick) as cluster:
            for client in ("Java", "Python"):
                with Tap(cluster.namesrv, cluster.broker) as tap:
                    said[client, side] = steps_of(client, tap.namesrv, java)
                heard[client, side] = tap.heard
    reasons = Reasons("clients.txt")
    lists = []
    for client in ("Java", "Python"):
        assert said[client, "ours"] == said[client, "apache"]
        shapes = [traffic_shapes.shapes(heard[client, side]) for side in ("apache", "ours")]
        lists.append((client, traffic_shapes.differences(*shapes), reasons))
    judge((some for _, found, _ in lists for some in found.values()), reasons)
    page["pairings"] = side_by_side_page.pairings(heard, lists)


def test_mqadmin_prints_the_same_of_both_brokers(
    apache_jars: Path, java: JavaHost, tmp_path: Path, page: dict[str, list[str]]
) -> None:
    def printed(side: str) -> dict[str, str]:
        folder = tmp_path / f"{side}-tools"
        (folder / "conf").mkdir(parents=True)
        with running(side, apache_jars, tmp_path, transactionCheckInterval=CHECK_MS) as cluster:
            return mqadmin.run(java, folder, cluster.namesrv, cluster.broker)

    with ThreadPoolExecutor(2) as sides:  # mqadmin waits more than it works
        theirs, ours = sides.map(printed, ("apache", "ours"))
    found = mqadmin.differences(theirs, ours)
    reasons = Reasons("mqadmin.txt")
    judge(found.values(), reasons)
    page["commands"] = side_by_side_page.commands(found, reasons)


def steps_of(client: str, namesrv: str, java: JavaHost) -> Sequence[tuple[str, str]]:
    """What each step of the scenario came to."""
    if client == "Python":
        return list(scenario.run(namesrv).items())
    lines = java.run("Scenario", namesrv, timeout_s=240)
    assert "END" in lines, lines
    said = [line[5:].partition(": ") for line in lines if line.startswith("SAID ")]
    return [(name, result) for name, _, result in said if name != "answer"]


def _page(parts: dict[str, list[str]], commit: str) -> str:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return "\n".join(
        [
            f"# Apache RocketMQ {side_by_side_page.RELEASE} and CometMQ side by side",
            "",
            f"Written by `make interop` on {when}, CometMQ at {commit}; not edited by hand.",
            "Answers are compared by code, header fields and body down to each value; times and",
            "places in the log are taken out first. Each difference has a reason, reviewed",
            "in tests/interop/side_by_side/reasons; a run with an unexplained one, or with a",
            "reason that nothing needs, fails.",
            "",
            "## The same requests to both",
            "",
            *parts["requests"],
            "",
            "## Two clients at two brokers",
            "",
            "Answer codes that went by at a proxy; a - is never asked.",
            "",
            *parts["pairings"],
            "",
            "## mqadmin",
            "",
            "What each command prints, without numbers, times, addresses and order.",
            "",
            *parts["commands"],
            "",
        ]
    )
