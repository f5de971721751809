"""What a consumer that reads last week's messages costs those who send now.

    .venv/bin/python bench/cold_reads.py --old-mb 1024 --seconds 10

Fills a store, stops the broker, drops the store's files from the system's cache, starts it again.
Then one connection sends without pause and its latencies are taken: alone, beside a consumer that
reads the old messages from the disk, and beside the same consumer once they are in memory. Prints
the percentiles of each, and how the second stands to the first; every round is repeated.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.records import message_batch, properties
from messages import pull_header, send_header

OLD, NEW, QUEUES = "LastWeek", "Now", 4
BODY, BATCH = 4096, 64


def fill(addr: str, megabytes: int) -> None:
    """Old messages, in batches to the first queue."""
    pairs = properties.encode({"TAGS": "a"})
    body = message_batch.encode(
        [message_batch.BatchItem(0, os.urandom(BODY), pairs) for _ in range(BATCH)]
    )
    with BlockingChannel(addr, 30) as channel:
        for _ in range(megabytes * 1024 * 1024 // (BODY * BATCH)):
            header = send_header(OLD, 0, QUEUES, is_batch=True)
            done = channel.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            if done.code != ResponseCode.SUCCESS:
                sys.exit(f"a batch was refused: {done}")


def forget(store: Path) -> int:
    """Drop every file of the store from the system's cache; bytes on disk."""
    size = 0
    for path in [p for p in store.rglob("*") if p.is_file()]:
        fd = os.open(path, os.O_RDWR)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(fd).st_blocks * 512
        finally:
            os.close(fd)
    return size


def read_on(addr: str, start: int) -> None:
    """In a process of its own: pull from an offset on, until killed or at the end."""
    offset = start
    with BlockingChannel(addr, 30) as channel:
        while True:
            answer = channel.call(RequestCode.PULL_MESSAGE, pull_header(OLD, 0, offset))
            if answer.code != ResponseCode.SUCCESS:
                return
            offset = int(answer.ext["nextBeginOffset"])
            print(offset, flush=True)


def send(addr: str, seconds: float, pause_s: float) -> list[float]:
    """Send one message after the other; each latency, seconds."""
    found, end = [], time.monotonic() + seconds
    with BlockingChannel(addr, 30) as channel:
        one = send_header(NEW, 0, QUEUES, TAGS="a")
        while (begin := time.monotonic()) < end:
            channel.call(RequestCode.SEND_MESSAGE_V2, one, b"x" * 128)
            found.append(time.monotonic() - begin)
            time.sleep(pause_s)
    return found


def beside(addr: str, start: int, args: argparse.Namespace) -> tuple[list[float], int]:
    """Latencies of sends while a reader reads on from an offset, and where it has come to."""
    command = [sys.executable, __file__, "--read", addr, "--start", str(start)]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seen = [start]

    def listen() -> None:
        assert reader.stdout
        for line in reader.stdout:
            seen[0] = int(line)

    listener = threading.Thread(target=listen)
    listener.start()
    while seen[0] == start and reader.poll() is None:
        time.sleep(0.01)
    found = send(addr, args.seconds, args.pause_ms / 1000)
    reader.terminate()
    reader.wait()
    listener.join()
    return found, seen[0]


def faults(pid: int) -> int:
    """How often the broker's loop has waited for the disk to bring a page of a mapping."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[9])


def line(name: str, found: list[float], read: int = 0) -> float:
    cuts = statistics.quantiles(found, n=1000, method="inclusive")  # no value beyond the worst
    p50, p99, p999 = (cuts[at] * 1000 for at in (499, 989, 998))
    worst = max(found) * 1000
    print(
        f"{name:<28} {len(found):>7} sends  p50 {p50:6.3f}  p99 {p99:6.3f}  p99.9 {p999:7.3f}  "
        f"max {worst:7.2f} ms  {read * BODY / 1048576:8.0f} MiB read",
        flush=True,
    )
    return p99


def run(args: argparse.Namespace, root: Path) -> None:
    cluster = LocalCluster(root / "store")
    with cluster:
        fill(cluster.broker, args.old_mb)
    print(f"{forget(root / 'store') >> 20} MiB on disk, none of it in memory")
    with cluster:
        addr, at, ratios = cluster.broker, 0, []
        waits = faults(cluster.pid)
        send(addr, 1.0, args.pause_ms / 1000)
        for _ in range(args.rounds):
            alone = line("alone", send(addr, args.seconds, args.pause_ms / 1000))
            found, reached = beside(addr, at, args)
            cold = line("beside a reader of the disk", found, reached - at)
            found, warm_to = beside(addr, at, args)
            warm = line("beside a reader of memory", found, warm_to - at)
            ratios.append((cold / alone, cold / warm))
            at = reached
        print(f"{faults(cluster.pid) - waits} major page faults of the loop")
    for to_alone, to_warm in ratios:
        print(f"p99 beside the disk: {to_alone:.2f} x alone, {to_warm:.2f} x beside memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old-mb", type=int, default=1024, help="old messages, MiB")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause-ms", type=float, default=1.0, help="between two sends")
    parser.add_argument("--dir", type=Path, default=None, help="where the store goes; a disk")
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read_on(args.read, args.start)
        return
    with tempfile.TemporaryDirectory(prefix="cometmq-cold-", dir=args.dir) as root:
        run(args, Path(root))


if __name__ == "__main__":
    main()
