"""What TLS costs a broker: its CPU for a message, and the rate, beside plain connections.

    python bench/tls_cost.py                 three rounds of each, one after the other
    python bench/tls_cost.py --save tls      also writes bench/results/tls.txt

One `cometmq standalone` serves both kinds of connections (`permissive`). 64 tasks of one producer
send and wait for each answer, by TLS 1.3 or without; then connections are opened and closed, each
after one request. CPU is the server's own, as the kernel counts it; of the rounds the best counts.
Client and server share a machine, so the rates say less than the CPU.
"""

import argparse
import asyncio
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from cometmq import AsyncProducer, Message
from cometmq.net.channel import connect
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from run import machine
from servers import Cores, save

SECONDS, TASKS, CONNECTIONS, ROUNDS = 3.0, 64, 300, 3
BODIES = (128, 16 * 1024)
KEYS = {
    "ECDSA P-256": ("ec", "ec_paramgen_curve:prime256v1"),
    "RSA 2048": ("rsa", "rsa_keygen_bits:2048"),
}


def made(place: Path, kind: tuple[str, str]) -> dict[str, Any]:
    """Settings of a server with a certificate of this kind."""
    cert, key = place / "cert.pem", place / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", kind[0], "-pkeyopt", kind[1], "-nodes",
         "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", cert, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"tls.server.certPath": str(cert), "tls.server.keyPath": str(key)}


def cpu_s(pid: int) -> float:
    """What all threads of the server have run, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


async def sends(
    cluster: LocalCluster, size: int, tls: ssl.SSLContext | None
) -> tuple[float, float]:
    """Sends a second, and the server's microseconds for each."""
    body, count, until = bytes(size), 0, 0.0

    async def task(producer: AsyncProducer) -> None:
        nonlocal count
        while time.perf_counter() < until:
            await producer.send(Message("cost", body))
            count += 1

    async with AsyncProducer("bench", namesrv=cluster.namesrv, tls=tls) as producer:
        await producer.send(Message("cost", body))
        before, until = cpu_s(cluster.pid), time.perf_counter() + SECONDS
        await asyncio.gather(*(task(producer) for _ in range(TASKS)))
        used = cpu_s(cluster.pid) - before
    return count / SECONDS, used / count * 1e6


async def connections(cluster: LocalCluster, tls: ssl.SSLContext | None) -> float:
    """The server's microseconds for a connection with one request."""
    before = cpu_s(cluster.pid)
    for _ in range(CONNECTIONS):
        channel = await connect(cluster.broker, tls=tls)
        await channel.call(request(RequestCode.GET_BROKER_CONFIG, 0), 5.0)
        channel.close()
        await channel.socket_closed
    return (cpu_s(cluster.pid) - before) / CONNECTIONS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", metavar="NAME")
    arguments = parser.parse_args()
    lines = [machine(Cores(-1, -1), None), f"{'':24}{'plain':>22}{'TLS 1.3':>22}"]
    for name, kind in KEYS.items():
        with tempfile.TemporaryDirectory() as place:
            settings = made(Path(place), kind)
            tls = ssl.create_default_context(cafile=settings["tls.server.certPath"])
            with LocalCluster(Path(place) / "store", **settings) as cluster:
                for size in BODIES if name.startswith("EC") else ():
                    both = [
                        [asyncio.run(sends(cluster, size, one)) for one in (None, tls)]
                        for _ in range(ROUNDS)
                    ]
                    best = [
                        min((round_[at] for round_ in both), key=lambda one: one[1])
                        for at in (0, 1)
                    ]
                    cells = "".join(f"{rate:>11,.0f}/s{us:>6.1f} us" for rate, us in best)
                    lines.append(f"{f'send of {size:,} bytes':24}{cells}")
                opened = [
                    min(asyncio.run(connections(cluster, one)) for _ in range(ROUNDS))
                    for one in (None, tls)
                ]
                cells = "".join(f"{us:>19,.0f} us" for us in opened)
                lines.append(f"{f'connection, {name}':24}{cells}")
    text = "\n".join(lines)
    print(text)
    if arguments.save:
        save(arguments.save, text)


if __name__ == "__main__":
    main()
