"""Handlers on Spark in other places than this process: a cluster of executors, Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

import cometmq
from client.short_delay_cluster import until
from cometmq.spark.java_runtime import java_home
from spark import handler_plans
from spark.planned_case import PlannedCase, push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark.live import Live

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2000)]
PROGRAM = Path(__file__).with_name("listen_program.py")
CLUSTER = "local-cluster[2,1,1024]"
WAIT_S = 900


@pytest.fixture(scope="module", autouse=True)
def _handlers_are_pickled_whole() -> Iterator[None]:
    """Workers of Spark cannot import the modules of tests."""
    cloudpickle.register_pickle_by_value(handler_plans)
    yield
    cloudpickle.unregister_pickle_by_value(handler_plans)


@contextmanager
def listening(where: str, folder: Path, **given: Any) -> Iterator[Callable[[], bool]]:
    """Run queries there, until the end of the block and once more; fails if the program does.

    Gives a function that says whether it has ended.
    """
    (folder / "given").write_bytes(cloudpickle.dumps(given))
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(cometmq.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(PROGRAM), where, str(folder)]
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(command, env=environment, cwd=folder, stdout=said, stderr=said)
        try:
            yield lambda: child.poll() is not None
            (folder / "stop").touch()
            child.wait(WAIT_S)
        except BaseException as error:
            error.add_note((folder / "said").read_text()[-5000:])
            raise
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 0, (folder / "said").read_text()[-5000:]


def run_both(case: PlannedCase, where: str, *, ends_executor: bool = False) -> None:
    """Handle a plan by a push consumer, and elsewhere, where a process dies in a handler."""
    pushed, handled = f"pushed-{case.topic}", f"handled-{case.topic}"
    handler = replace(
        case.handler(handled, ends_process_at=case.dies_at), ends_executor=ends_executor
    )
    settings = {**case.settings(handled), "namesrv": case.live.namesrv}
    given = {"group": handled, "topic": case.topic, "handler": handler, "settings": settings}
    with push(case, pushed), listening(where, case.root, **given) as has_ended:
        until(lambda: case.is_over(pushed), WAIT_S)
        until(lambda: case.is_over(handled) or has_ended(), WAIT_S)
    case.judge(pushed, handled)
    assert Path(f"{case.path(handled)}.ended").exists(), "nothing died"
    case.judge_commits(handled)


@pytest.mark.parametrize(
    ("order", "ends_executor"), [("none", True), ("queue", True), ("key", False), ("key", True)]
)
def test_a_plan_on_two_executors_ends_as_with_a_push_consumer_though_one_is_killed(
    live: Live, tmp_path: Path, order: str, *, ends_executor: bool
) -> None:
    case = PlannedCase(live, tmp_path, 1, order, seed=300)
    run_both(case, CLUSTER, ends_executor=ends_executor)


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_plan_by_spark_connect_ends_as_with_a_push_consumer_though_a_worker_dies(
    live: Live, tmp_path: Path, order: str
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")
    run_both(PlannedCase(live, tmp_path, 2, order, seed=300), "connect")
