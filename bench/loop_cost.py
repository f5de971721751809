"""CPU a message of two trees' brokers, loop iteration by loop iteration, on a machine that is busy.

    python bench/loop_cost.py BEFORE AFTER [ROUNDS]

compare_trees.py measures brokers beside a load generator; whatever else runs on the machine then
decides how many requests meet in one iteration of the broker's loop, and so what each costs. Here
each broker is in one process with its clients' ends of real sockets: all requests of an iteration
are written first, then the loop runs until they are answered, and only that is measured. So each
iteration has the same work on both sides. The two processes share a core and take turns; ROUNDS is
15 unless given, ONLY (environment) limits the rows, and with SIGNED=1 each request is signed by a
user who has a policy, and the brokers ask for that. Of a round's iterations the first quartile
counts. Prints medians, the median of the rounds' ratios and its quartiles. The key index is off: it
works behind the answers. With one request an iteration a process may be a fifth slower than
another of the same tree for all its life: believe such a row once it has come twice.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from load import HEAD, QUEUES, pull_header, send_header

CONNECTIONS_WINDOW = ((1, 1), (16, 1), (64, 1), (1, 64), (16, 16))
SHAPES = {
    **{f"send {c}x{w}": (c, w, 0, 0) for c, w in CONNECTIONS_WINDOW},
    **{f"send keys {c}x{w}": (c, w, 1, 0) for c, w in ((64, 1), (1, 64))},
    **{f"pull 32 {c}x{w}": (c, w, 0, 32) for c, w in ((1, 1), (8, 1), (8, 8))},
}
"""Connections, requests of each in an iteration, keys, messages a pull."""
ITERATIONS, REQUESTS_MAX = 200, 6_400
FILLED = 6_000
"""Messages of each queue before anything is measured."""
SIGNED = os.environ.get("SIGNED") == "1"
BODY = bytes(97 + i % 26 for i in range(128))


class Client:
    """The clients' ends of the sockets to the broker of this process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []
        self._serial = itertools.count(1)

    async def connect(self, count: int) -> None:
        while len(self._sockets) < count:
            made = socket.create_connection(("127.0.0.1", self._port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(made)
            await asyncio.sleep(0.002)

    def chunk(self, shape: tuple[int, int, int, int]) -> bytes:
        """The requests of one connection in one iteration."""
        _, window, keys, pull = shape
        args = argparse.Namespace(topic="bench128", keys=keys, pull=pull)
        header, body = (pull_header(args), b"") if pull else (send_header(args), BODY)
        sign = signed if SIGNED else lambda text, _body: text
        frames = []
        for n in itertools.islice(self._serial, window):
            values = {b"queue": n % QUEUES, b"serial": n, b"opaque": 10_000_000 + n}
            values[b"offset"] = 100 + n // QUEUES * 32 % (FILLED - 200)
            text = sign(header % values, body)
            frames += [HEAD.pack(4 + len(text) + len(body), len(text)), text, body]
        return b"".join(frames)

    async def iterate(self, shape: tuple[int, int, int, int]) -> float:
        """CPU seconds of the broker for one iteration's requests."""
        count, window, _, _ = shape
        for end in self._sockets[:count]:
            end.sendall(self.chunk(shape))
        begun = time.process_time()
        for _ in range(4):
            await asyncio.sleep(0)
        spent = time.process_time() - begun
        for end in self._sockets[:count]:
            await self._answers(end, window)
        return spent

    async def _answers(self, end: socket.socket, count: int) -> None:
        data, at, deadline = b"", 0, time.monotonic() + 10
        while count:
            try:
                data += end.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit(f"bench: {count} answers did not come")
                await asyncio.sleep(0)
            while count and len(data) - at >= 4:
                size = 4 + int.from_bytes(data[at : at + 4], "big")
                if len(data) - at < size:
                    break
                at, count = at + size, count - 1


def signed(header: bytes, body: bytes) -> bytes:
    """A header with the user's signature."""
    from cometmq.wire.request_signature import Credentials, add_signature

    found = json.loads(header)
    command = argparse.Namespace(ext=found["extFields"], body=body)
    add_signature(command, Credentials("user", "user-of-many"))
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def guard(root: Path) -> dict[str, object]:
    """Have the broker ask for signatures, and know a user who may send and read."""
    from cometmq.settings.access import AccessSettings

    user = {"username": "user", "password": "user-of-many", "userType": "Normal"}
    first = {"username": "root", "password": "root-of-many", "userType": "Super"}
    kinds = [("Topic:other", ["Pub"]), ("Topic:bench*", ["Pub", "Sub"]), ("Group:*", ["Sub"])]
    entries = [{"resource": one, "actions": acts, "decision": "Allow"} for one, acts in kinds]
    acl = {"subject": "User:user", "policies": [{"policyType": "Custom", "entries": entries}]}
    (root / "config").mkdir()
    text = json.dumps({"users": [user, first], "acls": [acl]})
    (root / "config" / "access.json").write_text(text)
    return {"access": AccessSettings(authentication_enabled=True, authorization_enabled=True)}


async def filled(broker: Any) -> Client:
    """A client of a broker whose topic it has filled."""
    broker.state.topics.ensure("bench128", QUEUES)
    await asyncio.sleep(0.5)  # what a start leaves to be done is none of the cost
    client = Client(broker.port)
    await client.connect(64)
    while broker.store.max_offset("bench128", 0) < FILLED:
        await client.iterate(SHAPES["send 16x16"])
    return client


async def serve() -> None:
    """Open a broker, and measure each shape that a line of stdin names."""
    from cometmq.broker.app import Broker
    from cometmq.settings.broker import BrokerSettings
    from cometmq.settings.store import StoreSettings

    root = Path(tempfile.mkdtemp(prefix="cometmq-bench-"))
    settings = BrokerSettings(store_path_root_dir=str(root), broker_name="a", listen_port=0)
    guarded = guard(root) if SIGNED else {}
    broker = Broker.open(settings, StoreSettings(message_index_enable=False), **guarded)
    await broker.start()
    try:
        client = await filled(broker)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            shape = SHAPES[line.strip()]
            requests = shape[0] * shape[1]
            count = max(10, min(ITERATIONS, REQUESTS_MAX // requests))
            spent = sorted([await client.iterate(shape) for _ in range(count)])
            print(spent[count // 4] / requests / (shape[3] or 1) * 1e6, flush=True)
    finally:
        await broker.stop()
        shutil.rmtree(root, ignore_errors=True)


class Side:
    """A process with the broker of one tree."""

    def __init__(self, root: Path, core: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"}
        command = [sys.executable, __file__, "--serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)
        os.sched_setaffinity(self._process.pid, {core})

    def line(self) -> str:
        line = self._process.stdout.readline()
        return line.strip() or sys.exit("bench: a broker ended")

    def measure(self, name: str) -> float:
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return float(self.line())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


def compare(before: Path, after: Path, rounds: int) -> None:
    core = min(os.sched_getaffinity(0))
    sides = Side(before, core), Side(after, core)
    for side in sides:
        side.line()
    print(f"{'us a message':<24}{'before':>9}{'after':>9}{'ratio':>8}{'quartiles':>16}")
    for name in SHAPES:
        if os.environ.get("ONLY", "") not in name:
            continue
        pairs: list[tuple[float, float]] = []
        for number in range(rounds + 1):
            order = sides if number % 2 else sides[::-1]
            found = {side: side.measure(name) for side in order}
            pairs.append((found[sides[0]], found[sides[1]]))
        del pairs[0]  # headers were learned
        ratios = [new / old for old, new in pairs]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        old, new = (median(column) for column in zip(*pairs, strict=True))
        line = f"{name:<24}{old:>9.2f}{new:>9.2f}{median(ratios):>8.3f}{low:>9.3f}-{high:<6.3f}"
        print(line, flush=True)
    for side in sides:
        side.end()


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        try:
            import uvloop
        except ImportError:
            asyncio.run(serve())
        else:
            uvloop.run(serve())
    elif len(sys.argv) in (3, 4):
        rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 15
        compare(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), rounds)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
