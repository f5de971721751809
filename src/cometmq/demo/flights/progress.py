"""The protocol by which the job reports its progress; `cli/demo_commands.py` has the bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress(Protocol):
    """Shows the progress of steps."""

    def step(self, name: str, total: int) -> Callable[[int], None]:
        """Begin a step of `total` messages (0: unknown); call the result with the number done."""
        ...
