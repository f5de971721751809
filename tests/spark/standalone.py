"""A standalone cluster of Spark: a master and two workers, each a process of its own, here.

It is made of the pip package alone. The workers have addresses of their own (127.0.0.2 and .3):
Spark takes what shares an address for one machine, and runs no second attempt of a task there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pyspark

import cometmq
from client.short_delay_cluster import until
from cometmq.spark.java_runtime import java_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HOME = Path(pyspark.__file__).parent
SOURCE = str(Path(cometmq.__file__).parents[1])
MASTER, WORKERS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_WAIT_S = 60


class Daemon:
    """A master or a worker, in one process group with the executors that it starts."""

    def __init__(self, log: Path, host: str, role: str, *arguments: str) -> None:
        self.log = log
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", *arguments]
        more = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        with log.open("wb") as out:
            self._child = subprocess.Popen(
                command,
                env=environment(host, **more),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """The first group of a line of its log, once it is there."""

        def found() -> re.Match[str] | None:
            assert self._child.poll() is None, self.log.read_text()[-3000:]
            return re.search(pattern, self.log.read_text())

        until(found, _WAIT_S)
        match = found()
        assert match is not None
        return match[1]

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    def executors(self) -> list[psutil.Process]:
        """The JVMs in which it runs tasks."""
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(self._child.pid).children(recursive=True)
            return [each for each in below if command_has(each, "CoarseGrainedExecutorBackend")]
        return []

    def kill(self) -> None:
        """End it alone, at once; its executors find out."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """End it with everything that it started."""
        end_group(self._child)


class StandaloneCluster:
    """The cluster; programs are given to it by `spark-submit`, and their drivers run here."""

    def __init__(self, root: Path) -> None:
        self._root, self._numbers = root, count()
        self._daemons: list[Daemon] = []
        self.workers: list[Daemon] = []
        self.url = ""

    def start(self) -> None:
        """Start all three, and wait until the workers are known to the master."""
        master = self._daemon(MASTER, "master.Master")
        self.url = master.said(r"Starting Spark master at (spark://\S+)")
        self.workers = [self._worker(host) for host in WORKERS]
        for worker in self.workers:
            worker.said(r"(Successfully registered) with master")

    def stop(self) -> None:
        """End everything."""
        for daemon in reversed(self._daemons):
            daemon.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill_executor(self, number: int) -> None:
        """kill -9 the executor of a worker, once there is one."""
        worker = self.workers[number]
        until(lambda: kill_living(worker.executors()), _WAIT_S)

    def kill_worker(self, number: int) -> None:
        """kill -9 a worker; its executor, which goes on for a moment, ends by itself."""
        self.workers[number].kill()

    def restore_workers(self) -> None:
        """Start others in the place of the workers that were killed."""
        for number, worker in enumerate(self.workers):
            if not worker.is_running:
                self.workers[number] = self._worker(WORKERS[number])
                self.workers[number].said(r"(Successfully registered) with master")

    def settings(self, python_path: str = SOURCE) -> dict[str, str]:
        """What a driver must be given; `python_path` is PYTHONPATH of the executors."""
        settings = {
            "spark.master": self.url,
            "spark.driver.host": MASTER,
            "spark.driver.bindAddress": MASTER,
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.ui.enabled": "false",
        }
        return settings | ({"spark.executorEnv.PYTHONPATH": python_path} if python_path else {})

    def submit(
        self,
        program: Path,
        *arguments: object,
        settings: Mapping[str, str] | None = None,
        python: str = sys.executable,
        python_path: str = SOURCE,
        py_files: str = "",
    ) -> Driver:
        """Start a program whose session is that of the cluster; `python` runs it everywhere."""
        command = [str(HOME / "bin" / "spark-submit"), "--driver-memory", "512m"]
        for key, value in {**self.settings(python_path), **(settings or {})}.items():
            command += ["--conf", f"{key}={value}"]
        command += ["--py-files", py_files] if py_files else []
        command += [str(program), *map(str, arguments)]
        return Driver(
            command, self._log(program.stem), PYTHONPATH=python_path, PYSPARK_PYTHON=python
        )

    def command(self, *arguments: str) -> Driver:
        """Start a command `cometmq` that runs a job of Spark on the cluster."""
        command = [sys.executable, "-m", "cometmq.cli.main", *arguments, "--heap-mb", "512"]
        for key, value in self.settings().items():
            command += ["--conf", f"{key}={value}"]
        log = self._log(arguments[1])
        return Driver([*command, "--spark-log", str(log)], log, PYTHONPATH=SOURCE)

    @contextmanager
    def connect_server(self) -> Iterator[str]:
        """The address of a server for Spark Connect whose tasks run on the cluster."""
        command = [str(HOME / "bin" / "spark-submit"), "--driver-memory", "512m"]
        given = {**self.settings(), "spark.connect.grpc.binding.port": "0"}
        for key, value in given.items():
            command += ["--conf", f"{key}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        more = {"PYTHONPATH": SOURCE, "PYSPARK_PYTHON": sys.executable}
        server = Driver([*command, "spark-internal"], self._log("connect"), **more)
        try:
            started = r"Spark Connect server started at: \S+:(\d+)"
            until(lambda: re.search(started, server.errors) or not server.is_running, _WAIT_S)
            port = re.search(started, server.errors)
            assert port is not None, server.errors[-3000:]
            yield f"127.0.0.1:{port[1]}"
        finally:
            server.kill()

    def _daemon(self, host: str, role: str, *arguments: str) -> Daemon:
        daemon = Daemon(self._log(role.rpartition(".")[2]), host, role, *arguments)
        self._daemons.append(daemon)
        return daemon

    def _worker(self, host: str) -> Daemon:
        place = str(self._root / "work")
        given = ["--cores", "2", "--memory", "1g", "--work-dir", place, self.url]
        return self._daemon(host, "worker.Worker", *given)

    def _log(self, name: str) -> Path:
        return self._root / f"{next(self._numbers)}-{name}.log"


class Driver:
    """A program that runs on the cluster, in a process group of its own."""

    def __init__(self, command: list[str], log: Path, **more: str) -> None:
        self.log = log
        with log.open("ab") as err:
            self.child = subprocess.Popen(
                command,
                cwd=log.parent,
                env=environment(MASTER, **more),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
                text=True,
            )

    @property
    def is_running(self) -> bool:
        return self.child.poll() is None

    def result(self, timeout_s: float) -> str:
        """What it wrote to stdout, once it has ended; fails when it ended by an error."""
        try:
            said, _ = self.child.communicate(timeout=timeout_s)
        finally:
            self.kill()
        assert self.child.returncode == 0, said[-1000:] + self.errors[-4000:]
        return said

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self.log.read_text(errors="replace")

    def processes(self, part: str) -> list[psutil.Process]:
        """Its processes whose command has a text."""
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.child.pid).children(recursive=True)
            return [each for each in below if command_has(each, part)]
        return []

    def kill(self) -> None:
        """End all its processes at once."""
        end_group(self.child)
        if self.child.stdout is not None:
            self.child.stdout.close()


def environment(host: str, **more: str) -> dict[str, str]:
    """What processes inherit that belong to a machine: nothing of the session of the tests."""
    foreign = ("SPARK_", "PYSPARK_", "PYTHONPATH", "COMETMQ_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {**kept, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": host, **more}


def end_group(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a process group, with the Python workers below it, which have groups of their own."""
    below: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(child.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    kill_living(below)
    child.wait()


def kill_living(processes: Iterable[psutil.Process]) -> bool:
    """Kill those that have not ended by themselves; whether there was one."""
    killed = False
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
            killed = True
    return killed


def command_has(process: psutil.Process, part: str) -> bool:
    """Whether a process that is still alive was started with a text in its command."""
    with suppress(psutil.NoSuchProcess):
        return any(part in word for word in process.cmdline())
    return False
