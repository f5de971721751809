"""The producer, beside a bare framed echo in the same minute: what the client alone can do.

    python bench/client.py                 all shapes, three rounds each
    python bench/client.py --only await    shapes whose name contains the text
    python bench/client.py --save NAME     also writes bench/results/NAME.txt

Shapes: `await` with 64 tasks that each await their sends; `batches` of 32 messages, eight under
way; `threads`: 64 threads on one blocking producer, beside 64 threads with a blocking socket each
that write a ready frame. All send to the echo, which answers everything at once, so the rate is
the client's. The mark of the first two is a ratio to the echo's requests at 1x64 as the generator
reaches them (two cores busy), that of the threads a ratio to the sockets.
Client on one core, echo on the other. Single messages are made inside the measured loop, the 32 of
a batch once, before it. One more process stands in for a name server. Of the rounds the best counts
on each side: other tenants only ever make one worse. Below 0.8 of a core for the client it says so.
Producers run on uvloop where it is installed, as the broker does; --asyncio has them without it.
"""

import argparse
import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from operator import itemgetter

from cometmq import AsyncProducer, Message, Producer
from cometmq.model.route import BrokerData, QueueData, TopicRouteData
from cometmq.wire.bodies.route import encode_route
from cometmq.wire.command import Command, response
from cometmq.wire.frame import FrameDecoder
from cometmq.wire.templates.send_request import SendRequestTemplate
from run import machine
from servers import Cores, Server, child, compiled, echo, measure, pin, save

SECONDS, WARM = 1.5, 0.4
SATURATED = 0.8
IS_PLAIN = "--asyncio" in sys.argv
BODY = b"x" * 128
TOPIC = "bench128"


class _Names(asyncio.Protocol):
    """Answers every question for a route with eight queues on the echo."""

    echo_port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.decoder = transport, FrameDecoder()

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            command = Command.decode(frame)
            broker = BrokerData(
                cluster="c", broker_name="broker-a", broker_addrs={0: f"127.0.0.1:{self.echo_port}"}
            )
            queues = QueueData(
                broker_name="broker-a", read_queue_nums=8, write_queue_nums=8, perm=6
            )
            route = TopicRouteData(broker_datas=(broker,), queue_datas=(queues,))
            answer = response(command.opaque, 0, body=encode_route(route, strict=True))
            self.transport.write(answer.encode())


async def _serve_names() -> None:
    server = await asyncio.get_running_loop().create_server(_Names, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def names(echo_port: int) -> Iterator[str]:
    """The name server's address."""
    command = [sys.executable, __file__, "--names", str(echo_port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


def _run(story: Coroutine[None, None, None]) -> None:
    """Runs on uvloop where it may and can."""
    if IS_PLAIN or not find_spec("uvloop"):
        asyncio.run(story)
    else:
        import uvloop

        uvloop.run(story)


def _in_tasks(addr: str, seconds: float, count: int, one: Callable) -> int:
    """Messages sent by so many tasks that each run `one` until a time; it returns how many."""
    sent = 0

    async def story() -> None:
        nonlocal sent
        async with AsyncProducer("bench", namesrv=addr) as producer:
            await producer.send(Message(TOPIC, BODY))
            until = time.perf_counter() + seconds
            sent = sum(await asyncio.gather(*(one(producer, until) for _ in range(count))))

    _run(story())
    return sent


def run_await(addr: str, seconds: float) -> int:
    """Messages sent by 64 tasks that await each send."""

    async def one(producer: AsyncProducer, until: float) -> int:
        sent = 0
        while time.perf_counter() < until:
            for _ in range(16):
                await producer.send(Message(TOPIC, BODY, tags="TagA"))
            sent += 16
        return sent

    return _in_tasks(addr, seconds, 64, one)


def run_batches(addr: str, seconds: float) -> int:
    """Messages sent in batches of 32, eight batches under way."""
    ready = [Message(TOPIC, BODY, tags="TagA") for _ in range(32)]

    async def one(producer: AsyncProducer, until: float) -> int:
        sent = 0
        while time.perf_counter() < until:
            await producer.send_batch(ready)
            sent += len(ready)
        return sent

    return _in_tasks(addr, seconds, 8, one)


def _threads(count: int, seconds: float, make: Callable[[], Callable[[], None]]) -> int:
    """How often so many threads call what `make` gives each of them."""
    counts = [0] * count
    until = time.perf_counter() + seconds

    def work(at: int) -> None:
        send, mine = make(), 0
        while time.perf_counter() < until:
            send()
            mine += 1
        counts[at] = mine

    threads = [threading.Thread(target=work, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def run_threads(addr: str, seconds: float, count: int = 64) -> int:
    """Messages sent by threads on one blocking producer."""
    with Producer("bench", namesrv=addr) as producer:
        producer.send(Message(TOPIC, BODY))
        return _threads(
            count, seconds, lambda: lambda: producer.send(Message(TOPIC, BODY, tags="TagA"))
        )


def run_sockets(port: int, seconds: float, count: int = 64) -> int:
    """Frames sent by threads with a blocking socket each, ready but for their numbers."""
    form = SendRequestTemplate("bench", TOPIC, "broker-a", 3, 4)
    tail = b"WAIT\\u0001true\\u0002TAGS\\u0001TagA\\u0002"
    key = b"AC1100021F9018B4AAC2%012X"

    def make() -> Callable[[], None]:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = 0

        def send() -> None:
            nonlocal number
            number += 1
            born_ms = time.time_ns() // 1_000_000
            connection.sendall(form.frame(number, born_ms, key % number, tail, BODY))
            data = connection.recv(65_536)
            while len(data) < struct.unpack_from(">I", data)[0] + 4:
                data += connection.recv(65_536)

        return send

    return _threads(count, seconds, make)


def one_round(shape: str, target: str, seconds: float, cpu: int) -> dict[str, float]:
    """One round in a process of its own: messages a second and CPU us of each."""
    arguments = ["--shape", shape, "--target", target, "--seconds", str(seconds)]
    arguments += ["--cpu", str(cpu), *(["--asyncio"] * IS_PLAIN)]
    return child(shape, arguments, 60)


def play(shape: str, target: str, seconds: float) -> dict[str, float]:
    """What a child does."""
    work = {
        "await 64": run_await,
        "batches of 32": run_batches,
        "64 threads": run_threads,
        "1 thread": lambda addr, time_s: run_threads(addr, time_s, 1),
        "64 sockets": lambda port, time_s: run_sockets(int(port), time_s),
        "1 socket": lambda port, time_s: run_sockets(int(port), time_s, 1),
    }[shape]
    work(target, WARM)
    wall, cpu = time.perf_counter(), time.process_time()
    sent = work(target, seconds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"rate": sent / wall, "cpu_us": cpu / sent * 1e6, "share": cpu / wall}


SHAPES = (
    ("await 64", "echo", 0.21),
    ("batches of 32", "echo", 1.0),
    ("64 threads", "64 sockets", 0.5),
    ("1 thread", "1 socket", 0.0),
)


def rounds(args: argparse.Namespace, in_c: bool) -> Iterator[str]:
    """One line a shape."""
    cores = Cores.pick()
    with echo(cores, in_c) as server, names(server.port) as addr:
        for shape, limit, mark in SHAPES:
            if args.only not in shape:
                continue
            ours, limits = [], []
            for _ in range(args.rounds):
                limits.append(reach(limit, server, cores, in_c, args.seconds))
                ours.append(one_round(shape, addr, args.seconds, cores.generator))
            mine = max(ours, key=itemgetter("rate"))
            bound = max(limits, key=itemgetter("rate"))
            ratio = mine["rate"] / bound["rate"]
            words = ["starved"] if mine["share"] < SATURATED else []
            if mark:
                words.append(f"mark {mark} {'met' if ratio >= mark else 'MISSED'}")
            yield (
                f"{shape:<15}{limit:<11}{bound['rate'] / 1e3:>8.1f}{mine['rate'] / 1e3:>8.1f}"
                f"{ratio:>7.2f}{bound['cpu_us']:>8.2f}{mine['cpu_us']:>8.2f}"
                f"{bound['share']:>7.2f}{mine['share']:>7.2f}  {', '.join(words)}"
            ).rstrip()


def reach(limit: str, server: Server, cores: Cores, in_c: bool, seconds: float) -> dict[str, float]:
    """What the limit of a shape reaches; of the echo and its generator the busier one counts."""
    if limit != "echo":
        return one_round(limit, str(server.port), seconds, cores.generator)
    options = {"connections": 1, "window": 64, "body": 128, "keys": 0, "pull": 0, "topic": TOPIC}
    raw = measure(server, cores, in_c, **options, seconds=seconds, warm=WARM)
    cpu = max(raw["own_cpu_s"], raw["server_cpu_s"])
    return {
        "rate": raw["requests"] / raw["wall_s"],
        "cpu_us": cpu / raw["requests"] * 1e6,
        "share": cpu / raw["wall_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="shapes whose name contains this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--save", default="", help="write bench/results/NAME.txt as well")
    parser.add_argument("--asyncio", action="store_true", help="without uvloop")
    parser.add_argument("--check", action="store_true", help="exit 1 when a mark is missed")
    for name in ("names", "cpu", "shape", "target"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.names:
        _Names.echo_port = int(args.names)
        asyncio.run(_serve_names())
    elif args.shape:
        pin(os.getpid(), int(args.cpu))
        print(json.dumps(play(args.shape, args.target, args.seconds)))
    else:
        why_python = compiled()
        text = machine(Cores.pick(), why_python) + "\n\n" + HEADING
        print(text, flush=True)
        for line in rounds(args, in_c=not why_python):
            print(line, flush=True)
            text += f"\n{line}"
        save(args.save, text)
        if args.check and "MISSED" in text:
            sys.exit("bench: a mark was missed")


HEADING = (
    f"{'':<15}{'limit':<11}{'limit':>8}{'client':>8}{'ratio':>7}{'limit':>8}{'client':>8}"
    f"{'limit':>7}{'client':>7}\n"
    f"{'':<15}{'':<11}{'k/s':>8}{'k/s':>8}{'':>7}{'CPU us':>8}{'CPU us':>8}"
    f"{'core':>7}{'core':>7}"
)

if __name__ == "__main__":
    main()
