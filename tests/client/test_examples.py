"""The examples run as they stand, against the broker that each of them names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.testing.cluster import LocalCluster

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    """What `cometmq standalone` is without any setting."""
    with LocalCluster(tmp_path_factory.mktemp("examples")) as running:
        yield running


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(standalone, path):
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"NAMESRV_ADDR": standalone.namesrv},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
