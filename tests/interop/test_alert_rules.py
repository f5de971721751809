"""Prometheus itself reads our alert rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop
RULES = Path(__file__).parents[2] / "deploy" / "alerts.yml"


def test_prometheus_finds_no_fault_in_the_alert_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.fail("interop tests need promtool on PATH (Debian: package prometheus)")
    command = ["promtool", "check", "rules", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
