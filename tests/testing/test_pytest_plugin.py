"""The pytest plugin, in runs of pytest of its own, as users have them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from cometmq.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import pytest
from cometmq import Admin, Message, Producer, PushConsumer
from cometmq.testing import Inbox, broker_killed

SEEN = []

@pytest.mark.parametrize("number", range(4))
def test_a_message_arrives(cometmq_cluster, cometmq_topic, cometmq_group, number):
    SEEN.append((cometmq_topic, cometmq_group))
    assert len(set(SEEN)) == len(SEEN)
    inbox = Inbox()
    consumer = PushConsumer(cometmq_group, namesrv=cometmq_cluster.namesrv, consume_from="first")
    consumer.subscribe(cometmq_topic, "*", inbox)
    with consumer, Producer("P", namesrv=cometmq_cluster.namesrv) as producer:
        producer.send(Message(cometmq_topic, b"%d" % number))
        assert [each.body for each in inbox.wait(1)] == [b"%d" % number]

def test_topics_have_the_queues_asked_for(cometmq_cluster, cometmq_make_topic):
    topic = cometmq_make_topic(queues=7)
    with Admin(namesrv=cometmq_cluster.namesrv) as admin:
        assert len(admin.queues(topic)) == 7
"""
OWN = """
from cometmq.testing import broker_killed

def test_a_broker_of_ones_own(cometmq_own_cluster):
    pid = cometmq_own_cluster.pid
    with broker_killed(cometmq_own_cluster):
        pass
    assert cometmq_own_cluster.pid != pid
"""
CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def cometmq_settings():
    return {"default_topic_queue_nums": 2}
"""


def run_pytest(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = {each.name for each in entry_points(group="pytest11")}
    named = () if "cometmq" in found else ("-p", "cometmq.testing.pytest_plugin")  # not installed
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, *arguments, "."],
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_fixtures_work_on_a_cluster_for_each_worker(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS + OWN)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    done = run_pytest(tmp_path, "-n", "2")
    assert "6 passed" in done.stdout, done.stdout


def test_tests_run_on_a_cluster_that_is_there(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    with LocalCluster() as cluster:
        done = run_pytest(tmp_path, "-n", "0", f"--cometmq-namesrv={cluster.namesrv}")
    assert "5 passed" in done.stdout, done.stdout
