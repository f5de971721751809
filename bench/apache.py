"""The broker beside Apache RocketMQ's own, in turns: the same generator, the same requests.

    python bench/apache.py                       the jars that `make interop` fetched
    python bench/apache.py --jars DIR            jars of another release
    python bench/apache.py --save apache         also writes bench/results/apache.txt

Nothing is pinned: Apache's broker works on several cores, ours on one, and the generator shares
them with both. Apache's is warmed up first, for fifteen seconds, with the settings it comes with
but for 8 queues a topic and a heap of 2 GiB. A round of each follows one of the other.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run import Round, Shape, machine
from servers import Cores, Server, broker, compiled, end, measure, save, until_idle, wait_ready

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cometmq" / "interop"
SHAPES = (
    Shape("send keys", 1, 1, 128, keys=1),
    Shape("send keys", 64, 1, 128, keys=1),
    Shape("send keys", 1, 64, 128, keys=1),
    Shape("send keys", 16, 16, 128, keys=1),
    Shape("pull 32", 8, 1, 128, pull=32),
)
ROUNDS, WARM_S = 3, 15
ANYWHERE = Cores(-1, -1)
OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
]
HEADING = (
    f"{'':<24}{'Apache':>9}{'ours':>9}{'ratio':>7}{'Apache':>16}{'ours':>16}{'Apache':>9}{'ours':>8}\n"
    f"{'':<24}{'k/s':>9}{'k/s':>9}{'':>7}{'p50 / p99 ms':>16}{'p50 / p99 ms':>16}"
    f"{'CPU us':>9}{'CPU us':>8}"
)


def free_port() -> int:
    """A port that was free a moment ago, as were those that brokers take too: - 2 and + 1."""
    for port in range(21_000, 32_000, 7):
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port - 2))
                third.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    sys.exit("bench: no free port between 21000 and 32000")


@contextmanager
def java(jars: Path, home: Path, main: str, flags: list[str], conf: dict) -> Iterator[int]:
    """One role of Apache RocketMQ; the number of its process."""
    home.mkdir()
    path, log = home / "settings.conf", home / "log"
    path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    command = ["java", *OPENS, *flags, f"-Duser.home={home}", "-cp", f"{jars}/*"]
    command += [f"org.apache.rocketmq.{main}", "-c", str(path)]
    with log.open("w") as out:
        told = {**os.environ, "ROCKETMQ_HOME": str(home)}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=told)
    try:
        wait_ready(lambda: "boot success" in log.read_text(), process, log)
        yield process.pid
    finally:
        end(process)


@contextmanager
def names(jars: Path, home: Path) -> Iterator[str]:
    """Its name server, "host:port"."""
    port = free_port()
    with java(jars, home / "n", "namesrv.NamesrvStartup", ["-Xmx256m"], {"listenPort": port}):
        yield f"127.0.0.1:{port}"


@contextmanager
def one_broker(
    jars: Path, home: Path, namesrv: str, heap_gb: int, **settings: object
) -> Iterator[Server]:
    """One of its brokers, with a fresh store in `home`."""
    port = free_port()
    conf = {
        "brokerName": "apache-a",
        "namesrvAddr": namesrv,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        "defaultTopicQueueNums": 8,
        "diskMaxUsedSpaceRatio": 95,
        **settings,
    }
    heap = [f"-Xms{heap_gb}g", f"-Xmx{heap_gb}g", f"-XX:MaxDirectMemorySize={heap_gb}g"]
    with java(jars, home, "broker.BrokerStartup", [*heap, "-XX:+AlwaysPreTouch"], conf) as pid:
        yield Server("Apache's broker", port, pid, namesrv)


@contextmanager
def apache(jars: Path, **settings: object) -> Iterator[Server]:
    """Its name server and its broker, with a fresh store."""
    home = Path(tempfile.mkdtemp(prefix="cometmq-apache-"))
    try:
        with (
            names(jars, home) as namesrv,
            one_broker(jars, home / "b", namesrv, 2, **settings) as server,
        ):
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


def rows(jars: Path, in_c: bool, seconds: float) -> Iterator[str]:
    """A line for each shape."""

    def one(shape: Shape, server: Server, seconds: float = seconds) -> Round:
        until_idle(server, 5)
        raw = measure(server, ANYWHERE, in_c, **shape.options(), seconds=seconds, warm=0.5)
        return Round.of(raw, shape, server)

    with apache(jars) as theirs, broker(ANYWHERE, None, []) as ours:
        one(Shape("warm up", 16, 4, 128, keys=1), theirs, WARM_S)
        one(Shape("warm up", 16, 4, 128, keys=1), ours, 1)
        for shape in SHAPES:
            pairs = [(one(shape, theirs), one(shape, ours)) for _ in range(ROUNDS)]
            yield row(shape, *(Round.middle(list(each)) for each in zip(*pairs, strict=True)))


def row(shape: Shape, theirs: Round, ours: Round) -> str:
    """One line of the table."""
    times = [f"{each.p50_ms:.2f} / {each.p99_ms:.2f}" for each in (theirs, ours)]
    return (
        f"{shape.name:<24}{theirs.rate / 1e3:>9.1f}{ours.rate / 1e3:>9.1f}"
        f"{ours.rate / theirs.rate:>7.2f}{times[0]:>16}{times[1]:>16}"
        f"{theirs.server_us:>9.1f}{ours.server_us:>8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jars", type=Path, default=CACHE / "5.5.0", help="Apache's jars")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of a round")
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    args = parser.parse_args()
    if not any(args.jars.glob("rocketmq-broker-*.jar")) or not shutil.which("java"):
        parser.error(f"no Java, or no broker of Apache RocketMQ in {args.jars}: run make interop")
    why_python = compiled()
    lines = [*machine(ANYWHERE, why_python).splitlines(), "", *HEADING.splitlines()]
    print("\n".join(lines), flush=True)
    for line in rows(args.jars, why_python is None, args.seconds):
        lines.append(line)
        print(line, flush=True)
    save(args.save, "\n".join(lines))


if __name__ == "__main__":
    main()
