"""The compiled module is built from all of its source, where the interpreter has its lock."""

from __future__ import annotations

import re
import runpy
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from cometmq import native

ROOT = Path(__file__).parents[2]


@pytest.fixture
def given_to_setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `setup.py` asks for."""
    setuptools = pytest.importorskip("setuptools")
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: found.update(given))
    monkeypatch.chdir(ROOT)
    return found


def test_every_file_of_the_source_is_built(given_to_setup):
    runpy.run_path("setup.py")
    (module,) = given_to_setup["ext_modules"]
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").iterdir()}
    assert there == {*module.sources, *module.depends}
    assert module.optional
    assert "graft native" in (ROOT / "MANIFEST.in").read_text().splitlines()


def test_without_the_lock_nothing_is_built(given_to_setup, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    runpy.run_path("setup.py")
    assert given_to_setup == {"ext_modules": [], "options": {}}


def test_the_edition_is_the_same_in_both_languages():
    (number,) = re.findall(r"#define EDITION (\d+)", (ROOT / "native/module.c").read_text())
    assert int(number) == native.EDITION
