"""The load generator where no C compiler is: the same options and the same JSON line as load.c.

One thread, one selector, frames cut by `struct`. It tops out below a good broker, so its rounds
mostly measure itself; run.py says so. What it leaves out: the changing KEYS are written, but born
times stand still for a round, and there is no --rate.
"""

import argparse
import json
import os
import re
import selectors
import socket
import struct
import time
from pathlib import Path

HEAD = struct.Struct(">II")
QUEUES = 8
OPAQUE = re.compile(rb'"opaque":(\d+)')
CODE = re.compile(rb'"code":(\d+)')


def send_header(args: argparse.Namespace) -> bytes:
    """A SEND_MESSAGE_V2 header with gaps for queue, UNIQ_KEY, KEYS and opaque."""
    key = rb"\u0002KEYS\u0001order-%(serial)010d" if args.keys else b""
    return (
        b'{"code":310,"extFields":{"a":"bench","b":"%s","c":"TBW102","d":"8","e":"%%(queue)d",'
        b'"f":"0","g":"%d","h":"0","i":"UNIQ_KEY\\u0001AC1100021F9018B4AAC2%%(serial)012X%s'
        b'\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA","j":"0","k":"false","m":"false",'
        b'"n":"broker-a"},"flag":0,"language":"JAVA","opaque":%%(opaque)08d,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    ) % (args.topic.encode(), int(time.time() * 1000), key)


def pull_header(args: argparse.Namespace) -> bytes:
    """A PULL_MESSAGE header with gaps for queue, offset and opaque."""
    return (
        b'{"code":11,"extFields":{"commitOffset":"0","consumerGroup":"bench","expressionType":"TAG",'
        b'"maxMsgNums":"%d","queueId":"%%(queue)d","queueOffset":"%%(offset)d","subVersion":"0",'
        b'"subscription":"*","suspendTimeoutMillis":"0","sysFlag":"4","topic":"%s"},"flag":0,'
        b'"language":"JAVA","opaque":%%(opaque)08d,"serializeTypeCurrentRPC":"JSON","version":479}'
    ) % (args.pull, args.topic.encode())


def server_cpu_s(pid: int) -> float:
    """CPU seconds of all threads of the server so far."""
    tasks = Path(f"/proc/{pid}/task")
    if not pid or not tasks.exists():
        return 0.0
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()) / 1e9


class Load:
    """Keeps the window of every connection full and counts what comes back."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.header = pull_header(args) if args.pull else send_header(args)
        self.body = b"" if args.pull else bytes(97 + i % 26 for i in range(args.body))
        self.serial = int(time.time() * 1e6)
        self.offsets = [0] * QUEUES
        self.asked: dict[int, tuple[float, int]] = {}
        self.latencies: list[float] = []
        self.requests = self.messages = self.errors = self.first_error = 0
        self.counting = self.stopping = False

    def ask(self) -> bytes:
        """One more request as bytes."""
        self.serial += 1
        queue, opaque = self.serial % QUEUES, 10_000_000 + self.serial % 80_000_000
        values = {b"queue": queue, b"serial": self.serial, b"opaque": opaque}
        if self.args.pull:
            values[b"offset"] = self.offsets[queue]
            self.offsets[queue] += self.args.pull
        header = self.header % values
        self.asked[opaque] = time.perf_counter(), queue
        total = 4 + len(header) + len(self.body)
        return HEAD.pack(total, len(header)) + header + self.body

    def take(self, frame: memoryview, header_bytes: int) -> None:
        """Counts one answer."""
        header = bytes(frame[8 : 8 + header_bytes])
        opaque, code = int(OPAQUE.search(header)[1]), int(CODE.search(header)[1])
        sent, queue = self.asked.pop(opaque)
        found, body, at = 1, frame[8 + header_bytes :], 0
        if self.args.pull:
            found = 0
            while at < len(body):
                at += int.from_bytes(body[at : at + 4], "big")
                found += 1
            if code in (19, 20, 21):
                self.offsets[queue] = 0
        if self.counting:
            self.requests += 1
            self.latencies.append(time.perf_counter() - sent)
            if code == 0:
                self.messages += found
            elif not (self.args.pull and code in (19, 20, 21)):
                self.errors += 1
                self.first_error = self.first_error or code

    def turn(self, selector: selectors.BaseSelector) -> None:
        """Reads what is there and asks for as much again."""
        for key, _ in selector.select(0.05):
            data = key.data["left"] + key.fileobj.recv(1 << 18)
            view, at, answers = memoryview(data), 0, 0
            while len(data) - at >= 8:
                total, mark = HEAD.unpack_from(data, at)
                if len(data) - at < total + 4:
                    break
                self.take(view[at : at + total + 4], mark & 0xFFFFFF)
                at, answers = at + total + 4, answers + 1
            key.data["left"] = data[at:]
            if answers and not self.stopping:
                key.fileobj.sendall(b"".join(self.ask() for _ in range(answers)))

    def run(self) -> dict[str, float | str]:
        """Warm-up, the measured window, and the last answers."""
        args, selector = self.args, selectors.DefaultSelector()
        for _ in range(args.connections):
            peer = socket.create_connection(("127.0.0.1", args.port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(peer, selectors.EVENT_READ, {"left": b""})
            peer.sendall(b"".join(self.ask() for _ in range(args.window)))
        self.until(selector, args.warm)
        self.counting = True
        wall, own, server = time.perf_counter(), time.process_time(), server_cpu_s(args.server_pid)
        self.until(selector, args.seconds)
        self.counting = False
        wall, own = time.perf_counter() - wall, time.process_time() - own
        server = server_cpu_s(args.server_pid) - server
        self.stopping = True
        self.until(selector, 0.05)
        ranked = sorted(self.latencies) or [0.0]
        return {
            "generator": "python",
            "requests": self.requests,
            "messages": self.messages,
            "errors": self.errors,
            "first_error": self.first_error,
            "unmatched": 0,
            "wall_s": wall,
            "own_cpu_s": own,
            "server_cpu_s": server,
            "p50_ms": ranked[len(ranked) // 2] * 1e3,
            "p99_ms": ranked[len(ranked) * 99 // 100] * 1e3,
            "p999_ms": ranked[len(ranked) * 999 // 1000] * 1e3,
        }

    def until(self, selector: selectors.BaseSelector, seconds: float) -> None:
        """Turns for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.turn(selector)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("port", "connections", "window", "body", "pull", "keys", "server-pid"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--warm", type=float, default=0.4)
    parser.add_argument("--topic", default="bench")
    args = parser.parse_args()
    if args.cpu >= 0:
        os.sched_setaffinity(0, {args.cpu})
    print(json.dumps(Load(args).run()))


if __name__ == "__main__":
    main()
