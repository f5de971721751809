"""The Airflow example, run by Airflow itself, which lives in an environment of its own.

`make airflow` makes that environment and runs this; where it is missing the tests are left out.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer, PushConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.testing import LocalCluster

ROOT = Path(__file__).parents[2]
DAGS = ROOT / "examples" / "airflow"
PYTHON = Path(os.environ.get("COMETMQ_AIRFLOW", ROOT / "var" / "airflow")) / "bin" / "python"
GROUP, TOPIC, MESSAGES = "airflow-clerks", "airflow-orders", 5
BOUND_S = 240

pytestmark = [
    pytest.mark.skipif(
        not PYTHON.exists(), reason="`make airflow` installs Airflow and runs these"
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def airflow(
    cometmq_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of Airflow's commands, with a database of its own."""
    home = tmp_path_factory.mktemp("airflow")
    environment = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NAMESRV_ADDR": cometmq_cluster.namesrv,
        "PYTHONPATH": f"{ROOT / 'src'}:{DAGS}",
    }
    made = command(environment, "db", "migrate")
    assert made.wait(BOUND_S) == 0, said(environment)
    with (
        Admin(namesrv=cometmq_cluster.namesrv) as admin,
        Producer("clerk", namesrv=cometmq_cluster.namesrv) as producer,
    ):
        admin.create_topic(TOPIC, 2)
        for number in range(MESSAGES):
            producer.send(Message(TOPIC, b"order %d" % number))
        admin.create_group(GROUP)
        admin.reset_group(GROUP, TOPIC, "earliest")
    return environment


def command(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return run(environment, "-m", "airflow", *words)


def run(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    out = Path(environment["AIRFLOW_HOME"]) / "out"
    with out.open("w") as file:
        return subprocess.Popen(
            [PYTHON, *words], env=environment, stdout=file, stderr=subprocess.STDOUT, text=True
        )


def said(environment: dict[str, str]) -> str:
    return (Path(environment["AIRFLOW_HOME"]) / "out").read_text()


@pytest.fixture
def waiting(airflow: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A run of the DAG that waits for the group."""
    running = command(airflow, "dags", "test", "after_the_orders")
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def test_a_task_waits_until_the_group_has_handled_all(
    airflow: dict[str, str], cometmq_cluster: LocalCluster, waiting: subprocess.Popen[str]
) -> None:
    deadline = time.monotonic() + BOUND_S
    while "DEFERRED" not in said(airflow).upper():
        assert waiting.poll() is None, said(airflow)
        assert time.monotonic() < deadline, said(airflow)
        time.sleep(0.1)
    assert "every order is handled" not in said(airflow)
    consumer = PushConsumer(GROUP, namesrv=cometmq_cluster.namesrv)
    consumer.subscribe(TOPIC, "*", lambda _: None)
    with consumer:
        assert waiting.wait(BOUND_S) == 0, said(airflow)
    assert f"{GROUP} has done {MESSAGES} messages of {TOPIC}" in said(airflow)
    assert "every order is handled" in said(airflow)


_EVENTS = f"""
import asyncio
from wait_for_group import MessageTrigger
async def main():
    found = []
    async for event in MessageTrigger("airflow-watch", "{TOPIC}").run():
        found.append(event.payload["body"])
        if len(found) == {MESSAGES}:
            print(sorted(found))
            return
asyncio.run(asyncio.wait_for(main(), 60))
"""


def test_each_message_is_an_event(airflow: dict[str, str]) -> None:
    done = run(airflow, "-c", _EVENTS)
    assert done.wait(BOUND_S) == 0, said(airflow)
    assert str([f"order {number}" for number in range(MESSAGES)]) in said(airflow)
