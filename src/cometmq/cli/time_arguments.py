"""Times on the command line: in ISO 8601, or as long ago as 90s, 15m, 2h, 3d."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import click

from cometmq.runtime.system_clock_and_files import SystemClock

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class TimeArgument(click.ParamType):  # type: ignore[type-arg]
    """A time as ms since 1970; without an offset from UTC it is one in UTC."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a time; a usage error for what is none."""
        if isinstance(value, int):
            return value
        if (found := time_ms(str(value))) is None:
            self.fail(
                f"{value!r} is no time: write 2026-01-31T08:00, now, or how long ago, as in 15m",
                param,
                ctx,
            )
        return found


def time_ms(text: str) -> int | None:
    """A time as ms since 1970; None for what is none."""
    now_ms = SystemClock().now_ms()
    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    if text.isdecimal():
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max(0, int(zoned.timestamp() * 1000))
