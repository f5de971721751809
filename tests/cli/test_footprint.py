"""What it takes to begin: the time of `cometmq --help`, what an import needs, the size on disk."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = Path(__file__).parents[2] / "src"
ROOT_PROJECT = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
ROUNDS = 5
INSTALLED_BYTES_MAX = 15_000_000
"""Of the base install: this package and all that it depends on, without bytecode."""


def cpu_s(code: str) -> float:
    """The CPU time of a new interpreter that runs some code, with its bytecode cached."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_at_most_twice_the_time_that_importing_click_takes() -> None:
    show = "import sys; sys.argv = ['cometmq', '--help']; from cometmq.cli.main import main; main()"
    cpu_s(show)  # writes the bytecode
    rounds = [(cpu_s("import click"), cpu_s(show)) for _ in range(ROUNDS)]
    click, ours = (min(each) for each in zip(*rounds, strict=True))
    assert ours < 2 * click, f"{ours:.3f} s, and importing click {click:.3f} s"


BLOCKED = """
import importlib.metadata, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name)
allowed = set(sys.stdlib_module_names) | {"cometmq"}
sys.meta_path.insert(0, Refuse())
import cometmq
for name in cometmq.__all__:
    getattr(cometmq, name)
import cometmq.serializers, cometmq.compat, cometmq.testing
"""


def test_the_client_is_imported_without_any_other_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_base_install_is_smaller_than_15_mb() -> None:
    own = sum(file.stat().st_size for file in (SOURCE / "cometmq").rglob("*") if is_shipped(file))
    seen: set[str] = set()
    others = {name: installed(name, seen) for name in needed(ROOT_PROJECT["dependencies"])}
    assert set(others) == {"click", "rich"}
    assert all(others.values())
    assert own + sum(others.values()) < INSTALLED_BYTES_MAX, (own, others)


def is_shipped(file: Path) -> bool:
    return file.is_file() and file.suffix != ".pyc"


def needed(requirements: Iterable[str]) -> list[str]:
    """The names of requirements that hold everywhere, without those of extras."""
    return [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requirements if ";" not in one]


def installed(name: str, seen: set[str]) -> int:
    """The bytes of an installed package, and of what it needs beside those that were seen."""
    if name.lower() in seen:
        return 0
    seen.add(name.lower())
    found = distribution(name)
    files = [Path(str(one.locate())) for one in found.files or ()]
    own = sum(file.stat().st_size for file in files if is_shipped(file))
    return own + sum(installed(one, seen) for one in needed(found.requires or ()))
