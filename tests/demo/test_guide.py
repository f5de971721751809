"""The guide's figures are those of the code."""

from pathlib import Path

import pytest

from cometmq.demo.flights.checks.measurements import CALM_AFTER_S
from cometmq.demo.flights.events import KINDS, WHOLE_YEAR
from cometmq.demo.flights.processes import (
    concurrent_group,
    consumer_process,
    job_processes,
    orderly_group,
    producer_process,
)
from cometmq.demo.flights.processes.fault_injection import BROKER_AT, CONSUMER_AT

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/flights.md"


@pytest.mark.parametrize(
    "words",
    [
        *(f"{count:,}" for count in WHOLE_YEAR.as_dict().values()),
        *(f"`{kind}`" for kind in KINDS),
        f"{job_processes.QUEUES} queues",
        f"`{orderly_group.GROUP}`",
        f"`{concurrent_group.GROUP}`",
        f"%RETRY%{concurrent_group.GROUP}",
        f"{producer_process.CHUNK:,} messages",
        f"{CONSUMER_AT:.0%}".replace("%", " %"),
        f"{BROKER_AT:.0%}".replace("%", " %"),
        f"{consumer_process.SUSPEND_MS} ms",
        f"{consumer_process.PULL_BATCH} messages",
        f"at most {consumer_process.PARKED_MAX} of each queue",
        f"`{job_processes.DELAY_LEVELS}`",
        f"locks last {job_processes.LOCK_LIFE_MS // 1000} s",
        f"them for {job_processes.LOCK_VALID_S:.0f} s",
        f"pause for {consumer_process.PAUSE_S * 1000:.0f} ms",
        f"within {CALM_AFTER_S:.0f} s of a kill",
    ],
)
def test_the_guide_says_what_the_code_does(words):
    assert words in " ".join(GUIDE.read_text(encoding="utf-8").split())
