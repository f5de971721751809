"""Progress of long commands on stderr, and where Spark's own messages go meanwhile."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import Progress


class ProgressBars:
    """Progress bars on a terminal, plain lines elsewhere."""

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(file=file)
        self._lines = None if console.is_terminal else console
        self._progress: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressBars:
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""
        self._progress.stop()

    def step(self, name: str, total: int) -> Callable[[int], None]:
        """Begin a bar of `total` (0: unknown); call the result with the number done."""
        if self._lines:
            self._lines.print(name)
        task = self._progress.add_task(name, total=total or None)

        def report_progress(done: int) -> None:
            self._progress.update(task, completed=done, total=total or done)

        return report_progress


@contextmanager
def redirected_stderr(path: Path) -> Iterator[TextIO]:
    """Redirect stderr to a file, for Spark's JVM and workers; yield the real stderr.

    Their messages (log levels, ends of worker processes) do not concern the user.
    """
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as real, path.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield real
        finally:
            sys.stderr.flush()
            real.flush()
            os.dup2(real.fileno(), 2)
