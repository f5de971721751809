"""What fresh traffic notices of a consumer that is far behind, and of a client that reads nothing.

    python bench/beside.py                 ten million messages behind, 10 s each, three rounds
    python bench/beside.py --count 100000  fewer
    python bench/beside.py --save beside   also writes bench/results/beside.txt

Sends of 128 B come at 5,000 a second on 64 connections, first alone, then beside a reader of
pulls of 32 messages that began at the first of all that the log holds, then beside a client that
pulls on one connection and never reads an answer. Generators and broker share the cores, and the
old messages are in memory as far as the system keeps them there.
"""

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from threading import Event, Thread

from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from growth import ANYWHERE, TOPIC, Curve, Point, a_broker, anonymous_mib, ask, fill, point
from hostile import dial, pull_header
from run import machine
from servers import Server, Shares, compiled, program, save

RATE, FRESH = 5_000, "fresh"


@contextmanager
def nobody(_server: Server) -> Iterator[None]:
    """Only the sends."""
    yield


@contextmanager
def one_behind(server: Server) -> Iterator[None]:
    """A reader that has all old messages before it, and asks for the next as soon as it can."""
    command = [*program("load", True), "--port", str(server.port), "--pull", "32"]
    reader = subprocess.Popen([*command, "--topic", TOPIC, "--seconds", "600"])
    try:
        yield
        assert reader.poll() is None, "the reader went on to the end"
    finally:
        reader.kill()
        reader.wait()


@contextmanager
def one_that_reads_nothing(server: Server) -> Iterator[None]:
    """A client that pulls as fast as its connection takes requests, and reads no answer.

    What a send left behind goes out before the next frames. Says so when the broker closed it.
    """
    done, link = Event(), dial(server.port)
    asked = pull_header(TOPIC, queue_offset=0)
    frames = request(RequestCode.PULL_MESSAGE, 1, asked).encode() * 100
    link.settimeout(0.5)

    def pull() -> None:
        left = memoryview(frames)
        while not done.is_set():
            try:
                left = left[link.send(left) :] or memoryview(frames)
            except TimeoutError:
                continue
            except OSError as error:
                print(f"the client that reads nothing was cut off: {error}", flush=True)
                return

    thread = Thread(target=pull)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        link.close()


def measured(server: Server, seconds: float, rounds: int) -> list[Curve]:
    """Rounds of sends beside each, in turns."""
    curves = [Curve(one.__name__, "round") for one in (nobody, one_behind, one_that_reads_nothing)]
    for number in range(rounds):
        for curve, beside in zip(curves, (nobody, one_behind, one_that_reads_nothing), strict=True):
            with beside(server):
                raw = ask(server, seconds, rate=RATE, topic=FRESH)
                mib = anonymous_mib(server.pid)
            cpu_us = raw["server_cpu_s"] / raw["requests"] * 1e6
            more = f"{raw['requests'] / raw['wall_s']:,.0f} sends a second"
            curve.add(Point(number + 1, cpu_us, raw["p50_ms"], raw["p99_ms"], mib, more))
    alone = median(one.p99_ms for one in curves[0].points)
    for curve in curves[1:]:
        ratio = median(one.p99_ms for one in curve.points) / alone
        print(f"{curve.name}: p99 {ratio:.2f} x that of sends alone", flush=True)
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000_000, help="how far behind")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt, too")
    args = parser.parse_args()
    if why := compiled():
        parser.error(f"the generator is written in C, and there is {why}")
    shares = Shares()
    with a_broker() as server:
        fill(server, args.count)
        point(server, 0)
        curves = measured(server, args.seconds, args.rounds)
    lines = [machine(ANYWHERE, None), f"shares     {shares.told()}"]
    lines += [f"old        {args.count:,} messages", ""]
    for curve in curves:
        lines += [*curve.lines()[:-2], ""]
    save(args.save, "\n".join(lines).rstrip())


if __name__ == "__main__":
    main()
