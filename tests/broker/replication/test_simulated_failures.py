"""Master, slave and link fail in every order: what was answered is at the slave and stays there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.replication.failing_pair import run_seeds
from broker.replication.seeded_runs import counts_what_was_sent
from cometmq.broker.replication.master_connection import MasterConnection
from cometmq.broker.replication.replica_quorum import ReplicaQuorum, SlaveRange
from cometmq.broker.replication.replication_server import ReplicationServer
from oracle_runs import record_run

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS, MANY, PARTS = 950, 100_000, 50
FOUND_WITHIN = 100


@pytest.mark.parametrize("half", range(2))
def test_what_is_answered_survives_failures_of_all_three(half: int) -> None:
    counts = run_seeds(range(half * SEEDS // 2, (half + 1) * SEEDS // 2))
    assert counts["PUT_OK"] > 1_200
    assert counts["FLUSH_SLAVE_TIMEOUT"] > 400
    assert min(counts[what] for what in ("slave", "master", "stall", "heal", "cut")) > 200


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_answered_survives_failures_from_many_seeds(part: int) -> None:
    counts = run_seeds(range(part * MANY // PARTS, (part + 1) * MANY // PARTS))
    record_run(
        "replicas",
        str(part),
        replay="pytest -m slow tests/broker/replication/test_simulated_failures.py",
        seeds=MANY // PARTS,
        slaves_crashed=counts["slave"],
        masters_crashed=counts["master"],
        links_stalled_or_cut=counts["stall"] + counts["cut"],
        answered_ok=counts["PUT_OK"],
        answered_12=counts["FLUSH_SLAVE_TIMEOUT"],
    )


def counts_what_lies_before(quorum: ReplicaQuorum, _log_begin: int, log_end: int) -> bool:
    return any(isinstance(each, SlaveRange) and log_end <= each.end for each in quorum._slaves)


def waits_for_nobody(_quorum: ReplicaQuorum, _log_begin: int, _log_end: int) -> bool:
    return True


def sends_what_is_not_flushed(server: ReplicationServer) -> int:
    return server._store.max_phy_offset


def reports_what_is_not_flushed(connection: MasterConnection) -> None:
    connection._report(connection._store.max_phy_offset)


def never_ends(_quorum: ReplicaQuorum) -> None:
    """What waits for slaves waits for ever."""


MUTANTS: dict[str, tuple[type, Callable[..., object], str]] = {
    "_is_covered, its begin": (ReplicaQuorum, counts_what_lies_before, "is answered and not at"),
    "_is_covered": (ReplicaQuorum, waits_for_nobody, "is answered and not at the slave"),
    "_time_out": (ReplicaQuorum, never_ends, "an answer came too late"),
    "acknowledge": (ReplicationServer, counts_what_was_sent, "is answered and not at the slave"),
    "log_end": (ReplicationServer, sends_what_is_not_flushed, "nothing was read"),
    "_report_when_safe": (MasterConnection, reports_what_is_not_flushed, "is answered and"),
}
"""The method that another one stands for, and what the simulation then says."""


@pytest.mark.parametrize("name", MUTANTS)
def test_what_decides_about_answers_is_missed_where_it_is_changed(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, changed, says = MUTANTS[name]
    monkeypatch.setattr(owner, name.partition(",")[0], changed)
    with pytest.raises(AssertionError, match=says):
        run_seeds(range(FOUND_WITHIN))
