"""Progress is drawn of what takes longer than two seconds, and of nothing else."""

import asyncio
import io
import sys

import pytest

from cometmq.cli import late_progress
from cometmq.cli.late_progress import LateProgress


@pytest.mark.parametrize(("late_s", "said"), [(3600.0, ""), (0.0, "groups")])
def test_progress_begins_once_time_has_passed(
    monkeypatch: pytest.MonkeyPatch, late_s: float, said: str
) -> None:
    monkeypatch.setattr(late_progress, "_LATE_S", late_s)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    async def work() -> None:
        with LateProgress("groups", 3) as progress:
            for _ in range(3):
                progress.step()

    asyncio.run(work())
    assert sys.stderr.getvalue().strip() == said  # type: ignore[attr-defined]
