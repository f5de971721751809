"""Faults under load on a standalone cluster of Spark: nothing is lost, and tables are exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oracle_runs import record_run
from spark.archive_on_cluster import COMMIT_ROWS, archive_through_kills
from spark.fault_rounds import FaultRounds
from spark.streams import texts

if TYPE_CHECKING:
    from spark.live import Live, TwoBrokers
    from spark.standalone import StandaloneCluster

WRITE = Path(__file__).with_name("cluster_write.py")
HOUR_S = 3600
SEEDS = range(25, 31)
"""Six times five rounds in the soak: one that is cut short loses none of the others."""
pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", ["retry", "kill", "speculate"])
def test_a_cluster_that_repeats_tasks_repeats_messages_and_loses_none(
    cluster: StandaloneCluster, live: Live, topic: str, tmp_path: Path, scenario: str
) -> None:
    given = (live.namesrv, topic, scenario, tmp_path / "rejected")
    found = json.loads(cluster.submit(WRITE, *given).result(400))
    assert found.pop("sent") > 19_800, "no message was sent again"
    assert found == {"deduplicated": 19_800, "whole": True, "rejected": True}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_an_archive_job_on_a_cluster_outlives_an_executor_and_a_worker_and_is_exact(
    cluster: StandaloneCluster, live: Live, topic: str, tmp_path: Path
) -> None:
    for queue_id in (0, 1):
        live.send(topic, queue_id, texts(queue_id * 2500, queue_id * 2500 + 2500))
    done, audit = archive_through_kills(cluster, live.namesrv, topic, tmp_path / "table")
    assert (done["rows"], done["misfits"], done["commits"]) == (5000, 0, 5000 // COMMIT_ROWS)
    assert audit["is_exact"]
    assert [(one["rows"], one["compared"]) for one in audit["queues"]] == [(2500, 2500)] * 2


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [
        pytest.param(1, 1, marks=[pytest.mark.slow, pytest.mark.timeout(2400)]),
        *(
            pytest.param(5, seed, marks=[pytest.mark.soak, pytest.mark.timeout(2 * HOUR_S)])
            for seed in SEEDS
        ),
    ],
)
def test_a_table_is_exact_after_each_kill_of_a_process_under_its_query(
    cluster: StandaloneCluster, two: TwoBrokers, tmp_path: Path, rounds: int, seed: int
) -> None:
    topic, place = two.make_topic("Rounds", 1), tmp_path / "place"
    replay = f"pytest -n 0 -m 'slow or soak' {Path(__file__).name} -k 'table and {rounds}-{seed}'"
    with FaultRounds(cluster, two, topic, place, seed=seed) as faults:
        for done in range(1, rounds + 1):
            faults.run_round()
            assert {faults.happened[fault] for fault in faults.faults} == {done}
            restarts = faults.happened["restarts"]
            assert restarts >= 2 * done, "a planner or a driver was not missed"
            # a run of hours that is cut short says how far it came
            figures = {what.replace(" ", "_"): count for what, count in faults.happened.items()}
            record_run(
                "spark-kills",
                f"at most {rounds} rounds, seed {seed}",
                replay=replay,
                rounds=done,
                messages=faults.sent,
                **figures,
            )
