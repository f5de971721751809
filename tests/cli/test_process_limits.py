"""What the system allows, and the sentences about what it does not."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from cli.shell import BOUND_S, COMMAND
from cometmq.cli import process_limits
from cometmq.cli.process_limits import problems

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_few_open_files_are_a_sentence_and_enough_of_them_none() -> None:
    (said,) = problems(16_384, 1_024)
    assert "may open 1024 files" in said
    assert "LimitNOFILE" in said
    assert list(problems(16_384, 1 << 20)) == []
    assert list(problems(16_384, -1)) == [], "without end"


def test_many_memory_maps_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maps").write_bytes(b"map\n" * 40_000)
    (tmp_path / "max").write_text("65530\n")
    monkeypatch.setattr(process_limits, "_MAPS", tmp_path / "maps")
    monkeypatch.setattr(process_limits, "_MAPS_MAX", tmp_path / "max")
    (said,) = problems(1, 1 << 20)
    assert "40000 memory maps of the 65530" in said
    assert "sysctl -w vm.max_map_count=262120" in said
    monkeypatch.setattr(process_limits, "_MAPS", tmp_path / "none")
    assert list(problems(1, 1 << 20)) == [], "where nobody says it"


def test_a_broker_raises_its_own_limit_and_warns_of_what_is_left(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = (
        f"ulimit -Sn 500; ulimit -Hn 3000; {COMMAND} broker -p0 -n 127.0.0.1:1 "
        f"--store {tmp_path}/s --ready-file {ready} < /dev/null & "
        f"while ! test -e {ready}; do kill -0 $! || exit 1; sleep 0.05; done; "
        "grep 'Max open files' /proc/$!/limits; kill $!; wait $!"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    (limit,) = [line for line in done.stdout.splitlines() if line.startswith("Max open files")]
    assert limit.split()[3:5] == ["3000", "3000"]
    assert "may open 3000 files, and 16384 connections" in done.stderr
