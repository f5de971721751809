"""What is measured and what measures it: echo, broker and load generator as processes."""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
START_S = 90.0


@dataclass(frozen=True)
class Server:
    """A running server: where it listens and which process it is."""

    name: str
    port: int
    pid: int
    namesrv: str = ""


@dataclass(frozen=True)
class Cores:
    """The core of each side, -1 where there is only one and pinning would be worse than none."""

    server: int
    generator: int

    @classmethod
    def pick(cls) -> "Cores":
        free = sorted(os.sched_getaffinity(0))
        return cls(free[0], free[1]) if len(free) > 1 else cls(-1, -1)


def compiled() -> str | None:
    """Builds generator and echo where a C compiler is; None, or why the Python ones must do."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return "no C compiler (cc) on PATH"
    BUILD.mkdir(exist_ok=True)
    for name in ("load", "echo"):
        source, target = HERE / f"{name}.c", BUILD / name
        newest = max(source.stat().st_mtime, (HERE / "frames.h").stat().st_mtime)
        if target.exists() and target.stat().st_mtime > newest:
            continue
        command = [compiler, "-O2", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            return f"{compiler} could not build {name}.c: {done.stderr.strip().splitlines()[-1]}"
    return None


def program(name: str, in_c: bool) -> list[str]:
    """The command that starts `load` or `echo`."""
    return [str(BUILD / name)] if in_c else [sys.executable, str(HERE / f"{name}.py")]


@contextmanager
def echo(cores: Cores, in_c: bool) -> Iterator[Server]:
    """The bare framed echo."""
    process = subprocess.Popen(
        [*program("echo", in_c), str(cores.server)],
        stdin=subprocess.PIPE,  # held open: the C one ends when it closes
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        yield Server("echo", int(process.stdout.readline()), process.pid)
    finally:
        end(process)


@contextmanager
def broker(cores: Cores, parent: Path | None, conf: list[str]) -> Iterator[Server]:
    """`cometmq standalone` on free ports with a fresh store under `parent`, removed afterwards."""
    store = Path(tempfile.mkdtemp(prefix="cometmq-bench-", dir=parent))
    ready = store / "ready.json"
    lines = ["brokerName=broker-a", "defaultTopicQueueNums=8", "autoCreateTopicEnable=true", *conf]
    (store / "broker.conf").write_text("\n".join(lines) + "\n")
    main = "from cometmq.cli.main import main; main()"
    command = [sys.executable, "-c", main, "standalone", "--store", str(store / "store")]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--ready-file", str(ready)]
    command += ["-c", str(store / "broker.conf")]
    log = (store / "log").open("w")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_ready(lambda: ready.exists() and ready.stat().st_size > 0, process, store / "log")
        pin(process.pid, cores.server)
        said = json.loads(ready.read_text())
        port = int(said["broker"].rpartition(":")[2])
        yield Server("broker", port, process.pid, said["namesrv"])
    finally:
        end(process)
        log.close()
        shutil.rmtree(store, ignore_errors=True)


def wait_ready(ready, process: subprocess.Popen, log: Path) -> None:
    """Waits until `ready` says so; ends the bench when the process ends first."""
    end = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            tail = log.read_text().strip().splitlines()[-5:]
            sys.exit("bench: the broker did not start: " + " / ".join(tail))
        time.sleep(0.02)


def pin(pid: int, cpu: int) -> None:
    """Pins every thread the process has; threads made later inherit it."""
    if cpu >= 0:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpu})


def until_idle(server: Server, limit_s: float = 30.0) -> None:
    """Waits until the server has nothing to do: less than a tenth of a core for 0.2 s."""

    def ran() -> float:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    end, before = time.monotonic() + limit_s, ran()
    while time.monotonic() < end:
        time.sleep(0.2)
        now = ran()
        if now - before <= 0.02:
            return
        before = now


def end(process: subprocess.Popen) -> None:
    """Ends a process, by force when it takes too long."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(server: Server, cores: Cores, in_c: bool, **options: object) -> dict[str, float]:
    """One round of the generator against a server."""
    command = [*program("load", in_c), "--port", str(server.port)]
    command += ["--server-pid", str(server.pid), "--cpu", str(cores.generator)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"bench: the generator failed against {server.name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def child(name: str, arguments: list[str], timeout_s: float) -> object:
    """One round of the bench that runs, in a process of its own: what it printed as JSON."""
    command = [sys.executable, sys.argv[0], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        sys.exit(f"bench: {name} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Shares:
    """Who had the CPUs while a bench ran: itself, with the children that have ended, or others."""

    def __init__(self) -> None:
        self.load = os.getloadavg()[0]
        self._began, (self._all, self._own) = time.monotonic(), self._used()

    @staticmethod
    def _used() -> tuple[float, float]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(fields[at]) for at in (0, 1, 2, 5, 6, 7))
        used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return ticks / os.sysconf("SC_CLK_TCK"), sum(one.ru_utime + one.ru_stime for one in used)

    def told(self) -> str:
        """Where and when, the load at the start, and the shares since."""
        everybody, own = self._used()
        took, own = time.monotonic() - self._began, own - self._own
        others = everybody - self._all - own
        return (
            f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, "
            f"{platform.python_implementation()} {platform.python_version()}, "
            f"{os.cpu_count()} CPUs, load {self.load:.1f} at the start; of the CPUs over "
            f"{took:.0f} s {own / took:.2f} by this bench, {others / took:.2f} by others"
        )


def save(name: str, text: str) -> None:
    """Keeps a report in bench/results, when it was asked for by name."""
    if name:
        (HERE / "results" / f"{name}.txt").write_text(text + "\n")
