"""CPU of a send with metrics and without: at the broker, scraped every second, and at a producer.

    python bench/metrics_cost.py                      15 rounds, two minutes
    python bench/metrics_cost.py --save metrics-cost  also writes bench/results/metrics-cost.txt

Two brokers take 64 connections' sends of 128 B with keys in turns, one of them with
`metricsExporterType=PROM` and a reader of its metrics; then two producers of a process in turns,
one of them watched by ClientMetrics. CPU is that of the broker's process with the scrapes it
answers, and that of the sending process. Prints the medians, and of the rounds' ratios the median
and the quartiles. Prometheus scrapes every 15 s by default, so a scrape costs a fifteenth there.
"""

import argparse
import asyncio
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from threading import Event, Thread

from cometmq import AsyncProducer, ClientMetrics, Message
from cometmq.testing.cluster import LocalCluster
from run import machine
from servers import Cores, Server, Shares, broker, compiled, measure, save, until_idle

ANYWHERE = Cores(-1, -1)
ROUND_S, SCRAPE_S = 2.0, 1.0
TASKS, SENDS = 32, 60


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Read the broker's metrics every second."""
    done = Event()

    def scrape() -> None:
        while not done.wait(SCRAPE_S):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert b"rocketmq_messages_in_total" in answer.read()

    reader = Thread(target=scrape)
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def sends(server: Server) -> float:
    """The broker's CPU of a send, in us."""
    until_idle(server)
    options = {"connections": 64, "body": 128, "keys": 1, "topic": "metrics"}
    raw = measure(server, ANYWHERE, True, seconds=ROUND_S, warm=0.2, **options)
    assert raw["requests"], raw
    assert not raw["errors"], raw
    return raw["server_cpu_s"] / raw["requests"] * 1e6


def at_the_broker(rounds: int) -> list[tuple[float, float]]:
    """CPU of a send in us, without metrics and with them, for each round."""
    port = free_port()
    shown = ["metricsExporterType=PROM", f"metricsPromExporterPort={port}"]
    pairs = []
    with broker(ANYWHERE, None, []) as plain, broker(ANYWHERE, None, shown) as watched:
        sends(plain)
        for number in range(rounds + 1):
            found = {}
            for server in (plain, watched) if number % 2 else (watched, plain):
                if server is watched:
                    with scraped(port):
                        found[server.pid] = sends(server)
                else:
                    found[server.pid] = sends(server)
            pairs.append((found[plain.pid], found[watched.pid]))
    return pairs[1:]


async def at_the_producer(namesrv: str, rounds: int) -> list[tuple[float, float]]:
    """CPU of an awaited send in us, without metrics and with them, for each round."""
    plain, watched = (AsyncProducer(name, namesrv=namesrv) for name in ("plain", "watched"))
    metrics = ClientMetrics()
    pairs = []
    async with plain, watched:
        metrics.watch(watched)
        for number in range(rounds + 1):
            found = {}
            for producer in (plain, watched) if number % 2 else (watched, plain):
                begun = time.process_time()
                await asyncio.gather(*(some(producer) for _ in range(TASKS)))
                if producer is watched:
                    list(metrics.samples())
                found[producer] = (time.process_time() - begun) / (TASKS * SENDS) * 1e6
            pairs.append((found[plain], found[watched]))
    return pairs[1:]


async def some(producer: AsyncProducer) -> None:
    for _ in range(SENDS):
        await producer.send(Message("Cost", b"x" * 128))


def line(name: str, pairs: list[tuple[float, float]]) -> str:
    without, with_them = (median(column) for column in zip(*pairs, strict=True))
    low, middle, high = quantiles([after / before for before, after in pairs], n=4)
    said = f"{name:<12}{without:>9.2f}{with_them:>9.2f}{middle:>8.3f}{low:>9.3f}-{high:.3f}"
    print(said, flush=True)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt, too")
    args = parser.parse_args()
    if why := compiled():
        parser.error(f"the generator is written in C, and there is {why}")
    shares = Shares()
    head = f"{'us a send':<12}{'without':>9}{'with':>9}{'ratio':>8}{'quartiles':>15}"
    print(head)
    lines = [line("broker", at_the_broker(args.rounds))]
    with LocalCluster() as cluster:
        pairs = asyncio.run(at_the_producer(cluster.namesrv, args.rounds))
    lines.append(line("producer", pairs))
    about = [machine(ANYWHERE, None), f"shares     {shares.told()}", ""]
    save(args.save, "\n".join([*about, head, *lines]))


if __name__ == "__main__":
    main()
