"""What was asked of Apache RocketMQ 5.5.0 is asked of ours, and the answers are laid side by side.

`make interop` makes the recording anew (tests/interop/test_side_by_side.py); the reasons for what
differs are in tests/interop/side_by_side/reasons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.testing.cluster import LocalCluster
from interop.side_by_side import raw
from interop.side_by_side.compare import differences
from interop.side_by_side.exchanges import Exchange, Talk
from interop.side_by_side.reasons import Reasons

RECORDING = Path(__file__).parent / "recorded" / "apache-5.5.0.jsonl"


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return raw.read(RECORDING)


def replayed(lines: list[dict[str, Any]], store: Path) -> dict[str, Exchange]:
    """The exchanges as they go with ours."""
    with (
        LocalCluster(store, apart=True, brokerName="broker-a") as cluster,
        Talk(cluster.namesrv, cluster.broker) as talk,
    ):
        raw.replay(lines, talk)
        return talk.exchanges


def recorded(lines: list[dict[str, Any]]) -> dict[str, Exchange]:
    """The exchanges as they went with Apache."""
    found: dict[str, Exchange] = {}
    for line in lines:
        if line["do"] == "send":
            request = raw.unpacked(line["request"])
            assert request is not None
            found[line["name"]] = Exchange(line["name"], line["to"], line["on"], request)
        elif line["do"] == "collect":
            found[line["name"]].answer = raw.unpacked(line["answer"])
        elif line["do"] == "pushed":
            push = raw.unpacked(line["push"])
            assert push is not None
            found[line["name"]] = Exchange(line["name"], "broker", line["on"], push, push)
    return found


def test_recorded_requests_are_answered_as_apache_answered_them(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    reasons = Reasons("raw.txt")
    theirs = recorded(lines)
    assert len(theirs) > 600
    found = differences(theirs, replayed(lines, tmp_path / "store"))
    odd = {str(each) for some in found.values() for each in some if reasons.of(each) is None}
    listed = "\n".join(sorted(odd)[:80])
    assert not odd, f"{len(odd)} differences without a reason:\n{listed}"
