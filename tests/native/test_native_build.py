"""What the compiled module is built from is named for the build, and so is in an sdist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cometmq import native

ROOT = Path(__file__).parents[2]


def test_every_file_of_the_source_is_named_for_the_build():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = settings["tool"]["setuptools"]["ext-modules"]
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").iterdir()}
    assert {name for name in there if name.endswith(".c")} == set(module["sources"])
    assert {name for name in there if name.endswith(".h")} == set(module["depends"])


def test_the_edition_is_the_same_in_both_languages():
    (number,) = re.findall(r"#define EDITION (\d+)", (ROOT / "native/module.c").read_text())
    assert int(number) == native.EDITION
