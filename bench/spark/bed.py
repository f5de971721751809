"""What every bench here uses: a broker with a filled topic, a session, and figures of both sides.

CPU is counted over whole processes: Spark's side is this process with the JVM and all Python
workers, the broker's is its process, with what it does behind its answers.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from cometmq import Admin  # noqa: E402
from cometmq.net.blocking_channel import BlockingChannel  # noqa: E402
from cometmq.spark.session import spark_session  # noqa: E402
from cometmq.testing.cluster import LocalCluster, ServerProcess  # noqa: E402
from cometmq.wire.codes import RequestCode, ResponseCode  # noqa: E402
from cometmq.wire.records import message_batch, properties  # noqa: E402
from messages import send_header  # noqa: E402
from run import commit  # noqa: E402
from servers import save  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

QUEUES, BATCH, WINDOW = 8, 256, 16
_TICK = os.sysconf("SC_CLK_TCK")
_IDLE_LOOK_S, _IDLE_CPU_S, _IDLE_MOST_S = 0.5, 0.02, 60


def arguments(text: str | None) -> argparse.Namespace:
    """The options that all of these benches take."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    return parser.parse_args()


@contextmanager
def session(cores: int | None = None) -> Iterator[SparkSession]:
    """Spark, with the formats of this folder."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    import formats

    spark = spark_session("bench", cores=cores, heap_mb=1024)
    spark.dataSource.register(formats.ReadySource)
    spark.dataSource.register(formats.CountingSource)
    spark.dataSource.register(formats.ClockedSource)
    try:
        yield spark
    finally:
        spark.stop()


def create_topic(cluster: LocalCluster, topic: str, queues: int = QUEUES) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(topic, queues=queues)


def fill(
    cluster: LocalCluster,
    topic: str,
    count: int,
    size: int,
    pairs_of: Callable[[int], dict[str, str]] = lambda _number: {},
) -> None:
    """Batches to every queue in turn, a window of them unanswered; `pairs_of` adds properties."""
    create_topic(cluster, topic)
    with BlockingChannel(cluster.broker) as channel:
        window: list[int] = []
        for number, at in enumerate(range(0, count, BATCH)):
            header = send_header(topic, number % QUEUES, QUEUES, is_batch=True)
            items = [
                _item(at + index, size, pairs_of(at + index))
                for index in range(min(BATCH, count - at))
            ]
            window.append(
                channel.post(RequestCode.SEND_BATCH_MESSAGE, header, message_batch.encode(items))
            )
            if len(window) >= WINDOW:
                answer = channel.wait(window.pop(0))
                if answer.code != ResponseCode.SUCCESS:
                    raise SystemExit(f"a batch was refused: {answer}")
        for opaque in window:
            channel.wait(opaque)


def _item(number: int, size: int, more: dict[str, str]) -> message_batch.BatchItem:
    pairs = {"UNIQ_KEY": f"7F00000100002A9F0000{number:012X}", "KEYS": f"k{number}", "TAGS": "A"}
    return message_batch.BatchItem(0, b"x" * size, properties.encode(pairs | more))


def process_of(cluster: LocalCluster) -> int:
    """The broker's process."""
    (server,) = [one for one in vars(cluster).values() if isinstance(one, ServerProcess)]
    return server.pid


def cpu_s(pid: int) -> float:
    """What one process has used, with its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[at]) for at in (11, 12, 13, 14)) / _TICK


def spark_pids(without: int = 0) -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, new = [], [os.getpid()]
    while new:
        pid = new.pop()
        found.append(pid)
        new += [child for child in parents.get(pid, ()) if child != without]
    return found


def spark_cpu_s(without: int = 0) -> float:
    """What this process, the JVM and the Python workers have used."""
    return sum(map(cpu_s, spark_pids(without)))


def memory_mib(without: int = 0) -> float:
    """What this process, the JVM and the Python workers have resident, shared pages in each."""
    total = 0
    for pid in spark_pids(without):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def wait_until_idle(pid: int) -> None:
    """Wait until a broker has done what it does behind its answers, mostly the key index."""
    deadline = time.monotonic() + _IDLE_MOST_S
    before, now = -1.0, cpu_s(pid)
    while now - before > _IDLE_CPU_S:
        if time.monotonic() > deadline:
            raise SystemExit(f"the broker still works {_IDLE_MOST_S} s after the last request")
        time.sleep(_IDLE_LOOK_S)
        before, now = now, cpu_s(pid)


@dataclass
class Figures:
    """Rounds of one measurement."""

    rate: list[float] = field(default_factory=list)
    spark_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    def measure(self, rows: int, broker: int, action: Callable[[], object]) -> None:
        """One round of so many rows.

        The rate is that of the action. What the broker does for it afterwards counts as its CPU,
        and is over before the next round begins.
        """
        wait_until_idle(broker)
        load = os.getloadavg()[0]
        spark, other, began = spark_cpu_s(broker), cpu_s(broker), time.perf_counter()
        action()
        took = time.perf_counter() - began
        spark = spark_cpu_s(broker) - spark
        wait_until_idle(broker)
        self.rate.append(rows / took)
        self.spark_us.append(spark / rows * 1e6)
        self.broker_us.append((cpu_s(broker) - other) / rows * 1e6)
        self.load.append(load)

    def line(self, name: str, beside: Figures | None = None) -> str:
        """A line: medians, the spread of the rates, and what they are to those of another."""
        text = (
            f"{name:<26}{median(self.rate):>10,.0f} rows/s ({min(self.rate):,.0f} to "
            f"{max(self.rate):,.0f})  CPU a row {median(self.spark_us):5.2f} us at Spark "
            f"({min(self.spark_us):.2f} to {max(self.spark_us):.2f}), "
            f"{median(self.broker_us):5.2f} at the broker"
        )
        if beside is not None:
            rates = median(a / b for a, b in zip(self.rate, beside.rate, strict=True))
            costs = median(a / b for a, b in zip(self.spark_us, beside.spark_us, strict=True))
            text += f"  {rates:.2f} x the rate, {costs:.2f} x the CPU"
        return f"{text}  load {median(self.load):.1f}"


class Report:
    """Lines that are printed as they come, and saved at the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[str] = []
        command = " ".join([f"python bench/spark/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        self.say(f"command    {command}")
        self.say(f"commit     {commit()}")
        self.say(
            f"machine    {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, "
            f"{platform.python_implementation()} {platform.python_version()}, "
            f"{os.cpu_count()} CPUs for Spark and the broker, load {os.getloadavg()[0]:.1f}"
        )

    def say(self, line: str) -> None:
        print(line, flush=True)
        self._lines.append(line)

    def save(self) -> None:
        """Keep it in bench/results, when a name was given."""
        save(self._name, "\n".join(self._lines))
