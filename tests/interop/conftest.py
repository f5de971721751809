"""Apache RocketMQ's released jars and client, and programs around other clients."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.testing.cluster import LocalCluster
from interop.apache import ApacheCluster
from interop.beside_mqadmin import both
from interop.jvm import JavaHost, compiled
from interop.maven import fetched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from interop.beside_mqadmin import Pair

HERE = Path(__file__).parent
VERSION = "5.5.0"

SAID = ("SENT", "GOT", "CHECKED", "REFUSED", "MISSING", "END")
"""How the lines begin that our programs print; the clients' own logging is left out."""

Run = Callable[..., list[str]]


@pytest.fixture(scope="session")
def apache_jars() -> Path:
    """The folder with the jars of Apache RocketMQ; fetched once per machine."""
    return fetched(VERSION)


@pytest.fixture(scope="session")
def apache(apache_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache's name server and broker with the usual settings; each test has topics of its own."""
    cluster = ApacheCluster(apache_jars, tmp_path_factory.mktemp("apache"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of Spark, small, for all tests of a file."""
    from cometmq.spark.session import spark_session

    session = spark_session("interop", cores=2, heap_mb=512)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java(apache_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHost]:
    """Our programs of java/ around the unmodified Java client, compiled, and a JVM to run them."""
    host = JavaHost(apache_jars, compiled(apache_jars, tmp_path_factory.mktemp("classes")))
    yield host
    host.stop()


@pytest.fixture(scope="session")
def java_program(java: JavaHost) -> Run:
    """Run java/Roundtrip.java; gives its lines up to END."""

    def run(*arguments: object, timeout_s: float = 150) -> list[str]:
        said = java.run("Roundtrip", *arguments, timeout_s=timeout_s)
        lines = [line for line in said if line.startswith(SAID)]
        assert lines[-1:] == ["END"], said
        return lines[:-1]

    return run


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build go/roundtrip.go around the unmodified Go client; gives its lines up to END."""
    if shutil.which("go") is None:
        pytest.fail("interop tests need go on PATH")
    folder = tmp_path_factory.mktemp("go")
    for name in ("go.mod", "roundtrip.go"):
        shutil.copy(HERE / "go" / name, folder / name)
    subprocess.run(["go", "mod", "tidy"], cwd=folder, check=True, timeout=600)
    subprocess.run(["go", "build", "-o", "roundtrip", "."], cwd=folder, check=True, timeout=600)

    def run(*arguments: object, timeout_s: float = 150) -> list[str]:
        done = subprocess.run(
            [str(folder / "roundtrip"), *(str(argument) for argument in arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(SAID)]
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        assert lines[-1:] == ["END"], done.stdout[-2000:] + done.stderr[-2000:]
        return lines[:-1]

    return run


@pytest.fixture(scope="session")
def node_program(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Install ali-ons and give what runs node/roundtrip.js; its lines up to END."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.fail(f"interop tests need {tool} on PATH")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "roundtrip.js"):
        shutil.copy(HERE / "node" / name, folder / name)
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(install, cwd=folder, check=True, timeout=240)

    def run(*arguments: object) -> list[str]:
        done = subprocess.run(
            ["node", "roundtrip.js", *map(str, arguments)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        lines = done.stdout.splitlines()
        assert lines[-1:] == ["END"], done.stdout[-2000:] + done.stderr[-2000:]
        return [line for line in lines if line.startswith(("SENT", "GOT", "MISSING"))]

    return run


@pytest.fixture(scope="session")
def cpp_program(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Install the wheel into a folder of its own, and give what runs cpp/roundtrip.py."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the wheel with the C++ client is for Linux on x86_64")
    folder = tmp_path_factory.mktemp("cpp")
    wanted = HERE / "cpp" / "requirements.txt"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    subprocess.run([*install, "-r", wanted], check=True, timeout=240)

    def run(*arguments: object) -> list[str]:
        keys = {key: text for key, text in os.environ.items() if key.startswith("ROCKETMQ_")}
        done = subprocess.run(
            [sys.executable, HERE / "cpp" / "roundtrip.py", *map(str, arguments)],
            env={"HOME": str(folder), "PYTHONPATH": str(folder), **keys},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        lines = done.stdout.splitlines()
        assert lines[-1:] == ["END"], done.stdout[-2000:] + done.stderr[-2000:]
        return [line for line in lines if line.startswith(("SENT", "GOT", "MISSING"))]

    return run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A CometMQ broker and name server in a process of their own."""
    with LocalCluster(store=tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module", params=["apache", "ours"])
def pair(
    request: pytest.FixtureRequest,
    apache_jars: Path,
    java: JavaHost,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """A cluster, Apache's or ours, and both commands at it."""
    with both(request.param, apache_jars, java, tmp_path_factory.mktemp(request.param)) as asked:
        yield asked
