"""Our Java programs around the unmodified Java client, run one after the other in one JVM.

Owns the compiled classes and the JVM of a session. A program that throws or takes too long ends
the JVM with all its clients; the next program gets another.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from pathlib import Path

from interop.apache import QUICK

SOURCES = Path(__file__).parent / "java"
LINES_MAX = 10_000


def compiled(jars: Path, classes: Path, names: str = "*") -> Path:
    """The folder with our classes of these names, a pattern or several parted by spaces."""
    found = [path for name in names.split() for path in SOURCES.glob(f"{name}.java")]
    sources = sorted(map(str, found))
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *sources]
    subprocess.run(command, check=True, timeout=240)
    return classes


class JavaHost:
    """The JVM, started when it is first needed."""

    def __init__(self, jars: Path, classes: Path) -> None:
        self._jars, self.classes = jars, classes
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_MAX)

    def command(self, main: str) -> list[str]:
        """How a JVM of its own is started for one of our classes."""
        return [
            "java",
            *QUICK,
            f"-Duser.home={self.classes}",
            "-Xmx256m",
            "-cp",
            f"{self.classes}:{self._jars}/*",
            main,
        ]

    def run(self, program: str, *arguments: object, timeout_s: float = 150) -> list[str]:
        """The lines that one program printed; fails when it throws or is not done in time."""
        child = self._child or self._start()
        assert child.stdin is not None
        words = [program, *map(str, arguments)]
        assert not any(each in word for word in words for each in "\t\n"), words
        child.stdin.write("\t".join(words) + "\n")
        child.stdin.flush()
        said: list[str] = []
        deadline = time.monotonic() + timeout_s
        while (line := self._next(deadline)) is not None and not line.startswith("\1"):
            said.append(line)
        if line != "\1DONE":
            self.stop()
            raise AssertionError(f"{' '.join(words)}:\n" + "\n".join(said[-60:]))
        return said

    def _next(self, deadline: float) -> str | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None

    def _start(self) -> subprocess.Popen[str]:
        self._child = child = subprocess.Popen(
            self.command("Host"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines = lines = queue.Queue[str | None](LINES_MAX)

        def listen() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                lines.put(line.rstrip("\n"))
            child.stdout.close()
            lines.put(None)

        threading.Thread(target=listen, daemon=True).start()
        return child

    def stop(self) -> None:
        """End the JVM and every client in it."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            assert child.stdin is not None
            child.stdin.close()
