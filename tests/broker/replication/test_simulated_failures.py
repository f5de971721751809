"""Master, slave and link fail in every order: what was answered is at the slave and stays there."""

from __future__ import annotations

import pytest

from broker.replication.failing_pair import run_seeds
from cometmq.broker.replication.replica_quorum import ReplicaQuorum, SlaveRange
from oracle_runs import record_run

SEEDS, MANY, PARTS = 950, 100_000, 50
FOUND_WITHIN = 100


def test_what_is_answered_survives_failures_of_all_three() -> None:
    counts = run_seeds(range(SEEDS))
    assert counts["PUT_OK"] > 300
    assert counts["FLUSH_SLAVE_TIMEOUT"] > 100
    assert min(counts[what] for what in ("slave", "master", "stall", "heal", "cut")) > 50


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


def test_a_simulation_without_the_rule_about_a_slave_s_first_byte_finds_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_covered(quorum: ReplicaQuorum, _log_begin: int, log_end: int) -> bool:
        return any(isinstance(each, SlaveRange) and log_end <= each.end for each in quorum._slaves)

    monkeypatch.setattr(ReplicaQuorum, "_is_covered", is_covered)
    with pytest.raises(AssertionError, match="is answered and not at the slave"):
        run_seeds(range(FOUND_WITHIN))
