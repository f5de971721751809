"""What a slave costs a master, and sends that wait for one beside Apache RocketMQ's, in turns.

    python bench/replication.py                        the jars that `make interop` fetched
    python bench/replication.py --save replication     also writes bench/results/replication.txt

Three tables. A SYNC_MASTER with inSyncReplicas=2 and one slave, Apache's and ours in turns with the
same generator. Then, ours, the CPU of a send at half of the best rate above: by a master alone, by
one with a slave that nobody waits for, and by one that waits. Then the same sends while an empty
slave copies a log of some hundred megabytes. Nothing is pinned: two brokers and the generator share
the cores.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from apache import ANYWHERE, CACHE, HEADING, names, one_broker, row
from cometmq import Admin
from run import Round, Shape, machine
from servers import Server, Shares, broker, compiled, end, measure, save, until_idle

SHAPES = (
    Shape("sync send", 1, 1, 128, keys=1),
    Shape("sync send", 64, 1, 128, keys=1),
    Shape("sync send", 1, 64, 128, keys=1),
    Shape("sync send", 16, 16, 128, keys=1),
)
PACED = Shape("send at half rate", 16, 16, 128, keys=1)
ROUNDS, WARM_S, FILL_S = 3, 12, 6
SYNC = ["brokerRole=SYNC_MASTER", "inSyncReplicas=2", "slaveTimeout=20000"]
PATIENT = {"waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 10_000}
"""Apache's broker refuses nobody for being slow: on few cores it is."""
IN_SYNC_S = 60.0


@contextmanager
def slave_of(master: Server) -> Iterator[None]:
    """Our slave of a broker of ours, with a store of its own; in sync before anything is timed."""
    store = Path(tempfile.mkdtemp(prefix="cometmq-slave-"))
    sets = ["brokerName=broker-a", "brokerRole=SLAVE", "brokerId=1", "haListenPort=0"]
    main = "from cometmq.cli.main import main; main()"
    command = [sys.executable, "-c", main, "broker", "-n", master.namesrv, "-p", "0"]
    command += [f"--store={store / 'store'}", *(f"--set={each}" for each in sets)]
    with (store / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        end(process)
        shutil.rmtree(store, ignore_errors=True)


def lag_bytes(master: Server) -> int | None:
    """What the one slave lacks; None: there is none yet."""
    with Admin(namesrv=master.namesrv) as admin:
        status = admin.replication_status(f"127.0.0.1:{master.port}")
    return status.slaves[0].lag_bytes if status.slaves else None


def until_in_sync(master: Server) -> float:
    """Wait until the slave has everything; seconds that took."""
    began = time.monotonic()
    while lag_bytes(master) != 0:
        if time.monotonic() - began > IN_SYNC_S:
            sys.exit(f"bench: the slave of {master.name} does not catch up")
        time.sleep(0.05)
    return time.monotonic() - began


@contextmanager
def apache_pair(jars: Path) -> Iterator[Server]:
    """Apache's SYNC_MASTER, whose slave has connected."""
    home = Path(tempfile.mkdtemp(prefix="cometmq-apache-"))
    common = {"brokerName": "broker-a", "inSyncReplicas": 2, "slaveTimeout": 20_000, **PATIENT}
    try:
        with (
            names(jars, home) as namesrv,
            one_broker(jars, home / "m", namesrv, 1, **common, brokerRole="SYNC_MASTER") as master,
            one_broker(jars, home / "s", namesrv, 1, **common, brokerRole="SLAVE", brokerId=1),
        ):
            yield master
    finally:
        shutil.rmtree(home, ignore_errors=True)


def one(shape: Shape, server: Server, seconds: float, **more: object) -> Round:
    """One round of the generator, once the server rests."""
    until_idle(server, 5)
    raw = measure(server, ANYWHERE, True, **shape.options(), seconds=seconds, warm=0.5, **more)
    return Round.of(raw, shape, server)


def beside_apache(jars: Path, seconds: float) -> Iterator[tuple[str, float]]:
    """A line for each shape, and our rate."""
    with apache_pair(jars) as theirs, broker(ANYWHERE, None, SYNC) as ours, slave_of(ours):
        until_in_sync(ours)
        one(Shape("warm up", 16, 4, 128, keys=1), theirs, WARM_S)
        one(Shape("warm up", 16, 4, 128, keys=1), ours, 1)
        for shape in SHAPES:
            pairs = [
                (one(shape, theirs, seconds), one(shape, ours, seconds)) for _ in range(ROUNDS)
            ]
            both = [Round.middle(list(each)) for each in zip(*pairs, strict=True)]
            yield row(shape, *both), both[1].rate


def costs(rate: float, seconds: float) -> Iterator[str]:
    """What a send costs a master of each kind, at a rate that all of them bear."""
    kinds = {"alone": [], "with a slave": [], "waiting for it": SYNC}
    with ExitStack() as stack:
        servers = {}
        for kind, conf in kinds.items():
            servers[kind] = stack.enter_context(broker(ANYWHERE, None, conf))
            if kind != "alone":
                stack.enter_context(slave_of(servers[kind]))
                until_in_sync(servers[kind])
            one(PACED, servers[kind], 1, rate=rate)
        rounds = [
            {kind: one(PACED, server, seconds, rate=rate) for kind, server in servers.items()}
            for _ in range(ROUNDS)
        ]
        middle = {kind: Round.middle([each[kind] for each in rounds]) for kind in kinds}
        for kind, found in middle.items():
            share = 1 - middle["alone"].server_us / found.server_us
            yield paced_row(kind, found) + f"{share:>9.0%}"


def catching_up(rate: float) -> Iterator[str]:
    """Sends while a slave copies what is there, and after that."""
    with broker(ANYWHERE, None, []) as server:
        one(Shape("fill", 16, 16, 1024), server, FILL_S)
        yield paced_row("alone", one(PACED, server, 2, rate=rate))
        with slave_of(server):
            while (lag := lag_bytes(server)) is None:
                time.sleep(0.01)
            found = one_while_busy(server, rate)
            left = lag_bytes(server)
            assert left is not None
            yield (
                paced_row("a slave copies", found) + f"   it lacked {lag / 1e6:.0f} MB, then "
                f"{left / 1e6:.0f} MB"
            )
            yield f"{'':<24}in sync {until_in_sync(server):.1f} s later"


def one_while_busy(server: Server, rate: float) -> Round:
    """One round that waits for no rest."""
    raw = measure(server, ANYWHERE, True, **PACED.options(), seconds=1, warm=0.1, rate=rate)
    return Round.of(raw, PACED, server)


def paced_row(name: str, found: Round) -> str:
    """What a round at a given rate found."""
    return (
        f"{name:<24}{found.rate / 1e3:>9.1f}{found.p50_ms:>9.2f}{found.p99_ms:>9.2f}"
        f"{found.server_us:>9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jars", type=Path, default=CACHE / "5.5.0", help="Apache's jars")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a round")
    parser.add_argument("--rate", type=float, default=0.0, help="leave Apache out; sends a second")
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    args = parser.parse_args()
    if why := compiled():
        parser.error(why)
    lines: list[str] = []

    def show(*told: str) -> None:
        lines.extend(told)
        print("\n".join(told), flush=True)

    shares = Shares()
    show(*machine(ANYWHERE, None).splitlines(), "")
    rate = args.rate
    if not rate:
        if not any(args.jars.glob("rocketmq-broker-*.jar")) or not shutil.which("java"):
            parser.error(
                f"no Java, or no broker of Apache RocketMQ in {args.jars}: run make interop"
            )
        show(*HEADING.splitlines())
        rates = []
        for line, our_rate in beside_apache(args.jars, args.seconds):
            show(line)
            rates.append(our_rate)
        rate = max(rates) / 2
    head = f"{'k/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}"
    show("", f"{'our master, paced':<24}{head}{'for it':>9}", *costs(rate, args.seconds))
    show("", f"{'a slave far behind':<24}{head}", *catching_up(rate))
    show("", shares.told())
    save(args.save, "\n".join(lines))


if __name__ == "__main__":
    main()
