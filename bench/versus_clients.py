"""Our client on our broker beside Java's client on Apache's broker, each pair alone on the machine.

Used by versus.py as its part `clients`. Client and broker share the cores. Work: 64 sends at once,
each awaited (`await`, beside 64 threads of Java) or each in a thread; four senders of batches of
32; a backlog with a handler a message and with 32 a call; 100 messages a second from the moment
when each should have been sent to its handler. Java's programs are in java/Clients.java.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

from cometmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, Producer, PushConsumer

HERE = Path(__file__).resolve().parent
BODY = b"x" * 128
TRIPS = "100 a second, to the handler"
serial = count(time.time_ns())


def message(topic: str, **properties: str) -> Message:
    return Message(topic, BODY, tags="TagA", keys=f"order-{next(serial)}", properties=properties)


async def sends_awaited(namesrv: str, topic: str, seconds: float) -> dict[str, float]:
    """64 tasks that send one message after the other."""
    done = [0]

    async def sender(producer: AsyncProducer) -> None:
        while True:
            await producer.send(message(topic))
            done[0] += 1

    async with AsyncProducer("versus", namesrv=namesrv) as producer:
        tasks = [asyncio.create_task(sender(producer)) for _ in range(64)]
        await asyncio.sleep(1)
        began, before, cpu = time.monotonic(), done[0], time.process_time()
        await asyncio.sleep(seconds)
        found = result(done[0] - before, time.monotonic() - began, time.process_time() - cpu)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def sends_in_threads(
    namesrv: str, topic: str, seconds: float, threads: int, size: int
) -> dict[str, float]:
    """Threads that send one message, or one batch, after the other."""
    done, is_over = [0] * threads, threading.Event()

    def sender(at: int, producer: Producer) -> None:
        while not is_over.is_set():
            if size == 1:
                producer.send(message(topic))
            else:
                producer.send_batch([message(topic) for _ in range(size)])
            done[at] += size

    with Producer("versus", namesrv=namesrv) as producer:
        workers = [threading.Thread(target=sender, args=(n, producer)) for n in range(threads)]
        for worker in workers:
            worker.start()
        time.sleep(1)
        began, before, cpu = time.monotonic(), sum(done), time.process_time()
        time.sleep(seconds)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        found = result(sum(done) - before, took, cpu)
        is_over.set()
        for worker in workers:
            worker.join()
    return found


def backlog(namesrv: str, topic: str, seconds: float, size: int) -> dict[str, float]:
    """A plain handler, in threads."""
    handled = [0]

    def handle(messages: list) -> None:
        handled[0] += len(messages)

    consumer = PushConsumer(
        f"versus-{next(serial)}", namesrv=namesrv, consume_from=ConsumeFrom.FIRST, batch_size=size
    )
    consumer.subscribe(topic, "*", handle)
    with consumer:
        while not handled[0]:
            time.sleep(0.01)
        time.sleep(2)
        began, before, cpu = time.monotonic(), handled[0], time.process_time()
        time.sleep(seconds)
        took = time.monotonic() - began
        return result(handled[0] - before, took, time.process_time() - cpu)


async def backlog_async(namesrv: str, topic: str, seconds: float) -> dict[str, float]:
    """An async handler, one message a call."""
    handled = [0]

    async def handle(messages: list) -> None:
        handled[0] += len(messages)

    consumer = AsyncPushConsumer(
        f"versus-{next(serial)}", namesrv=namesrv, consume_from=ConsumeFrom.FIRST, batch_size=1
    )
    consumer.subscribe(topic, "*", handle)
    async with consumer:
        while not handled[0]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        began, before, cpu = time.monotonic(), handled[0], time.process_time()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        return result(handled[0] - before, took, time.process_time() - cpu)


async def trips(namesrv: str, topic: str, seconds: float, rate: int = 100) -> dict[str, float]:
    """From the moment when a message should have been sent to its handler."""
    late: list[float] = []

    async def handle(messages: list) -> None:
        late.extend(time.monotonic() - float(one.properties["due"]) for one in messages)

    group, number = f"versus-{next(serial)}", 5 * rate + int(seconds * rate)
    consumer = AsyncPushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    async with AsyncProducer("versus", namesrv=namesrv) as producer:
        await producer.send(message(topic, due=str(time.monotonic())))
        consumer.subscribe(topic, "*", handle)
        async with consumer:
            await asyncio.sleep(3)
            began = time.monotonic()
            for each in range(number):
                due = began + each / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await producer.send(message(topic, due=str(due)))
            while len(late) <= number:
                await asyncio.sleep(0.1)
    kept = sorted(1000 * one for one in late[5 * rate + 1 :])
    found = result(len(kept), seconds, 0.0)
    return found | {"p50_ms": kept[len(kept) // 2], "p99_ms": kept[len(kept) * 99 // 100]}


def result(messages: int, seconds: float, cpu_s: float) -> dict[str, float]:
    return {"messages": messages, "seconds": seconds, "cpu_s": cpu_s, "p50_ms": 0, "p99_ms": 0}


OURS = {
    "await 64": lambda names, topic, s: asyncio.run(sends_awaited(names, topic, s)),
    "64 threads": lambda names, topic, s: sends_in_threads(names, topic, s, 64, 1),
    "4 x batches of 32": lambda names, topic, s: sends_in_threads(names, topic, s, 4, 32),
    "backlog, one a call": lambda names, topic, s: backlog(names, topic, s, 1),
    "backlog, 32 a call": lambda names, topic, s: backlog(names, topic, s, 32),
    "backlog, one a call, async": lambda names, topic, s: asyncio.run(
        backlog_async(names, topic, s)
    ),
    TRIPS: lambda names, topic, s: asyncio.run(trips(names, topic, s)),
}
JAVA = {
    "await 64": ("threads", 64),
    "64 threads": ("threads", 64),
    "4 x batches of 32": ("batches", 4),
    "backlog, one a call": ("consume", 1),
    "backlog, 32 a call": ("consume", 32),
    "backlog, one a call, async": ("consume", 1),
    TRIPS: ("trips", 100),
}


def topic_of(work: str) -> str:
    """The topic of a piece of work: backlogs are filled before, each round of trips has its own."""
    if work == TRIPS:
        return f"trips-{next(serial)}"
    return "filled" if work.startswith("backlog") else "sent"


def compile_java(jars: Path, classes: Path) -> None:
    """Build Clients.java."""
    source = str(HERE / "java" / "Clients.java")
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), source]
    subprocess.run(command, check=True, timeout=240)


def run_ours(work: str, namesrv: str, seconds: float) -> dict[str, float]:
    """One piece of work by our client, in a process of its own."""
    command = [
        sys.executable,
        str(HERE / "versus_clients.py"),
        work,
        namesrv,
        topic_of(work),
        str(seconds),
    ]
    return _said(command)


def run_java(
    work: str, namesrv: str, seconds: float, jars: Path, classes: Path
) -> dict[str, float]:
    """The same by Java's client, in a JVM of its own."""
    command = ["java", f"-Duser.home={classes}", "-Xmx1g", "-cp", f"{classes}:{jars}/*", "Clients"]
    return _said([*command, namesrv, topic_of(work), str(seconds), *map(str, JAVA[work])])


def _said(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"messages"')]
    if done.returncode or not lines:
        why = [line for line in done.stderr.splitlines() if "Exception" in line or "Error" in line]
        sys.exit(f"versus: {' '.join(command)} failed: {'; '.join(why[:3])} {done.stderr[-300:]}")
    return json.loads(lines[-1])


if __name__ == "__main__":
    print(json.dumps(OURS[sys.argv[1]](sys.argv[2], sys.argv[3], float(sys.argv[4]))))
