"""Settings of the log of a role: its form, its levels, and the file that it goes to.

Refuses to know the `logging` module; `cli/log_output.py` works with them. Java: logback's files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cometmq.settings.keys import at_least, check, one_of, setting

PLAIN, JSON = "plain", "json"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_is_name = re.compile(r"[a-z_]+(\.[a-z_]+)*").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How a role logs; how much is also said by `-v` and `-vv`."""

    log_format: str = setting(PLAIN, note="plain, or json: an object a line")
    log_levels: str = setting(
        "", note="levels of packages, as in net:DEBUG,store.log:INFO; they go before -v"
    )
    log_file: str = setting("", note="file that the log goes to; empty: stderr")
    log_file_bytes_max: int = setting(
        64 * 1024 * 1024, note="size at which the file is renamed (.1) and a new one begins"
    )
    log_files_max: int = setting(5, note="renamed files that are kept; the oldest is deleted")

    def __post_init__(self) -> None:
        """Check every value."""
        one_of(self, "log_format", PLAIN, JSON)
        at_least(self, 1024, "log_file_bytes_max")
        at_least(self, 1, "log_files_max")
        are_levels = all(_is_name(name) and level in LEVELS for name, level in self._pairs())
        rule = f"pairs as in net:DEBUG,store.log:INFO; levels are {', '.join(LEVELS)}"
        check(self, "log_levels", are_levels, rule)

    @property
    def levels(self) -> dict[str, str]:
        """The level of each package, by its whole name."""
        return {
            name if name.split(".")[0] == "cometmq" else f"cometmq.{name}": level
            for name, level in self._pairs()
        }

    def _pairs(self) -> list[tuple[str, str]]:
        found = (part.strip().partition(":") for part in self.log_levels.split(","))
        return [(name.strip(), level.strip().upper()) for name, _, level in found if name]
