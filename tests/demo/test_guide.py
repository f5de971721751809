"""The guide's figures are those of the code."""

from pathlib import Path

import pytest

from cometmq.demo.flights import control, follow, processes, produce, stream
from cometmq.demo.flights.events import KINDS, WHOLE_YEAR
from cometmq.demo.flights.findings import CALM_AFTER_S
from cometmq.demo.flights.kills import BROKER_AT, CONSUMER_AT

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/flights.md"


@pytest.mark.parametrize(
    "words",
    [
        *(f"{count:,}" for count in WHOLE_YEAR.as_dict().values()),
        *(f"`{kind}`" for kind in KINDS),
        f"{processes.QUEUES} queues",
        f"`{stream.GROUP}`",
        f"`{control.GROUP}`",
        f"%RETRY%{control.GROUP}",
        f"{produce.CHUNK:,} messages",
        f"{CONSUMER_AT:.0%}".replace("%", " %"),
        f"{BROKER_AT:.0%}".replace("%", " %"),
        f"{follow.SUSPEND_MS} ms",
        f"{follow.PULL_BATCH} messages",
        f"`{control.DELAY_LEVELS}`",
        f"locks live {processes.LOCK_LIFE_MS // 1000} s",
        f"them for {processes.LOCK_VALID_S:.0f} s",
        f"pause for {follow.PAUSE_S * 1000:.0f} ms",
        f"within {CALM_AFTER_S:.0f} s of a kill",
    ],
)
def test_the_guide_says_what_the_code_does(words):
    assert words in " ".join(GUIDE.read_text(encoding="utf-8").split())
