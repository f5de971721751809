"""The reference of the public API is made without a broken link, and would notice one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

pytest.importorskip("pdoc")


def test_a_link_that_leads_nowhere_is_found(
    tmp_path: Path, writer_of: Callable[[str], Any]
) -> None:
    broken_links = writer_of("api_reference").broken_links
    (tmp_path / "a.html").write_text('<a href="b.html#here">b</a><a href="https://x/y">x</a>')
    (tmp_path / "b.html").write_text('<p id="here">b</p><script>"<a href=\'nowhere\'>"</script>')
    assert broken_links(tmp_path) == []
    (tmp_path / "b.html").write_text('<p id="there">b</p><a href="c.html">c</a>')
    assert broken_links(tmp_path) == [
        "a.html: the link b.html#here leads nowhere",
        "b.html: the link c.html leads nowhere",
    ]


def test_every_public_name_says_what_it_is(writer_of: Callable[[str], Any]) -> None:
    assert writer_of("api_reference").names_without_text() == []


def test_the_reference_is_made(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    script = root / "scripts" / "api_reference.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={"PYTHONPATH": str(root / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "cometmq.html").read_text(encoding="utf-8")
    assert 'id="Admin.create_topic"' in text, "what Admin has of its parts is shown with it"
    assert 'id="Producer.stats"' in text
    assert "Unpack[SelectionArguments]" in text
    assert "&lt;class" not in text, "types are shown as they are written"
