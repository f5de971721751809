"""How the package comes to driver and executors of a cluster, and what works in each way."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from spark.standalone import MASTER, SOURCE, environment
from spark.streams import texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark.live import Live
    from spark.standalone import StandaloneCluster

    Report = Callable[..., dict[str, Any]]

PROGRAM = Path(__file__).with_name("cluster_packaging.py")
ALL_OK = {"read": "ok", "stream": "ok", "write": "ok"}
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An interpreter that has Spark and what it needs, and not this package."""
    root = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    (packages,) = root.glob("lib/python3*/site-packages")
    # Paths in a .pth are searched, but the .pth files in them are not: ours is one of those.
    (packages / "spark.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    python = root / "bin" / "python"
    command = [python, "-c", "import pyspark, pandas, cometmq"]
    found = subprocess.run(command, env=environment(MASTER), capture_output=True, check=False)
    assert b"No module named 'cometmq'" in found.stderr
    return python


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """One zip of the package, as it lies in a wheel."""
    path = tmp_path / "cometmq.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(Path(SOURCE).rglob("*")):
            if "__pycache__" not in file.parts and file.is_file():
                archive.write(file, file.relative_to(SOURCE))
    return path


@pytest.fixture
def report(
    cluster: StandaloneCluster, live: Live, topic: str, tmp_path: Path, bare: Path
) -> Report:
    """Runs the program with the bare interpreter on driver and executors."""
    live.send(topic, 0, texts(0, 40))

    def report(**given: str) -> dict[str, Any]:
        driver = cluster.submit(PROGRAM, live.namesrv, topic, tmp_path, python=str(bare), **given)
        found: dict[str, Any] = json.loads(driver.result(600))
        return found

    return report


def test_a_package_installed_on_driver_and_executors_is_found_by_name(
    report: Report, bare: Path
) -> None:
    (packages,) = bare.parents[1].glob("lib/python3*/site-packages")
    (packages / "cometmq.pth").write_text(SOURCE)  # as pip installs a folder with -e
    found = report(python_path="")
    assert found["homes"] == [f"{SOURCE}/cometmq/__init__.py"]
    assert found["by name"] == found["registered"] == ALL_OK


def test_one_zip_on_the_python_path_of_driver_and_executors_is_found_by_name(
    report: Report, package: Path
) -> None:
    found = report(python_path=str(package))
    assert found["homes"] == [f"{package}/cometmq/__init__.py"]
    assert found["by name"] == found["registered"] == ALL_OK


def test_py_files_alone_do_for_batches_of_a_registered_class_and_for_nothing_else(
    report: Report, package: Path
) -> None:
    found = report(python_path="", py_files=str(package))
    for outcome in found["by name"].values():
        assert "DATA_SOURCE_NOT_FOUND" in outcome
    registered = found["registered"]
    assert (registered["read"], registered["write"]) == ("ok", "ok")
    assert "No module named 'cometmq'" in registered["stream"]
