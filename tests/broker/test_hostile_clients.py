"""Hostile clients against a broker in a process of its own: a well-behaved one hardly notices."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from broker.commands import pull_header, send_header
from broker.hostile_clients import MODES
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTACK_S = 1.5
TIMES_CALM_MAX = 200
"""Round trips beside nobody: a turn of the loop that an attacker fills takes more than these."""
TRIES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("store")) as running:
        yield running


def cpu_s(pid: int) -> float:
    """What a process has worked so far, seconds; it stands still while other programs run."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux: clock_getcpuclockid(3) of a process


def serve(channel: BlockingChannel, offset: int) -> None:
    """Send a message and read it again."""
    sent = channel.call(RequestCode.SEND_MESSAGE_V2, send_header("Good"), b"good")
    assert (sent.code, int(sent.ext["queueOffset"])) == (0, offset)
    got = channel.call(RequestCode.PULL_MESSAGE, pull_header("Good", queue_offset=offset))
    assert got.code == 0


def work_beside(mode: str, cluster: LocalCluster) -> list[float]:
    """How much the broker works while a neighbour of an attacker waits: by round trip, sorted."""
    script = Path(__file__).parent / "hostile_clients.py"
    command = [sys.executable, str(script), mode, cluster.broker.rpartition(":")[2], str(ATTACK_S)]
    with BlockingChannel(cluster.broker, 10.0) as channel:
        first = channel.call(RequestCode.SEND_MESSAGE_V2, send_header("Good"), b"first")
        offset = int(first.ext["queueOffset"]) + 1
        worked: list[float] = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as attacker:
            while attacker.poll() is None:
                before = cpu_s(cluster.pid)
                serve(channel, offset + len(worked))
                worked.append(cpu_s(cluster.pid) - before)
                time.sleep(0.005)
            said = attacker.stderr.read() if attacker.stderr else ""
        assert attacker.returncode == 0, said
        assert len(worked) > 20
        return sorted(worked)


@pytest.fixture(scope="module")
def calm_s(cluster: LocalCluster) -> float:
    return median(work_beside("calm", cluster))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "calm"])
def test_a_well_behaved_client_waits_for_little_of_what_hostile_ones_ask(
    mode: str, cluster: LocalCluster, calm_s: float
) -> None:
    p99: list[float] = []
    while len(p99) < TRIES:
        worked = work_beside(mode, cluster)
        p99.append(worked[-1 - len(worked) // 100] / calm_s)
        if p99[-1] < TIMES_CALM_MAX:
            return
    pytest.fail(f"as long as {p99} calm round trips beside {mode}, at most {TIMES_CALM_MAX}")
