"""A large backlog and a slow handler: what the consumer keeps in memory, as a curve.

    python bench/memory.py                  200,000 messages of 1 KiB, 40 s
    python bench/memory.py --count 10000000 --body 128 --seconds 300    the ten million of the issue
    python bench/memory.py --save NAME      also writes bench/results/NAME.txt

The broker holds the backlog in eight queues. One consumer with the default limits (1,000 messages,
100 MiB and a span of 2,000 a queue) and a handler of 20 ms reads it for the time given. Twice a
second its resident memory is read beside what the limits count: messages and bytes of bodies in its
windows. The bound printed is what the limits allow: a queue pulls while it holds no more than its
limit, so it may hold one answer (32 messages) more.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from cometmq import AsyncPushConsumer, ConsumeFrom, FlowLimits
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.bodies.admin import decode_running_info
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.client import GetConsumerRunningInfoRequestHeader
from messages import fill
from run import machine
from servers import Cores, Server, broker, child, pin, save

GROUP = "slow"
TOPIC, QUEUES, HANDLER_S, EVERY_S = "backlog", 8, 0.02, 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1_048_576


def held_by(broker_addr: str, client_id: str) -> tuple[int, int]:
    """The messages in the windows and the whole MiB of bodies of each queue, as operators see."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=GROUP, client_id=client_id, jstack_enable=False
    )
    with BlockingChannel(broker_addr) as channel:
        answer = channel.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    queues = decode_running_info(answer.body).mq_table.values()
    return (
        sum(one.cached_msg_count for one in queues),
        sum(one.cached_msg_size_in_mib for one in queues),
    )


async def watch(namesrv: str, broker_addr: str, seconds: float) -> list[dict[str, float]]:
    """Consume slowly and note what is held."""
    handled = 0

    def slow(messages) -> None:
        nonlocal handled
        time.sleep(HANDLER_S)
        handled += len(messages)

    curve = [{"at": 0.0, "mib": resident_mib(), "held": 0, "held_mib": 0, "handled": 0}]
    consumer = AsyncPushConsumer(
        GROUP, namesrv=namesrv, consume_from=ConsumeFrom.FIRST, stop_timeout_s=1.0
    )
    consumer.subscribe(TOPIC, "*", slow)
    began = time.monotonic()
    async with consumer:
        while (at := time.monotonic() - began) < seconds:
            await asyncio.sleep(EVERY_S)
            held, mib = await asyncio.to_thread(held_by, broker_addr, consumer.client_id)
            now = {"at": at + EVERY_S, "mib": resident_mib(), "handled": handled}
            curve.append(now | {"held": held, "held_mib": mib})
    return curve


def watched(server: Server, seconds: float, cpu: int) -> list[dict[str, float]]:
    """Watch a consumer in a process of its own."""
    arguments = ["--watch", server.namesrv, "--broker", f"127.0.0.1:{server.port}"]
    arguments += ["--seconds", str(seconds), "--cpu", str(cpu)]
    return child("the consumer", arguments, seconds + 60)


def drawn(curve: list[dict[str, float]], width: int = 40) -> list[str]:
    """The curve as lines of text: at most thirty of its points."""
    most, step = max(one["mib"] for one in curve), max(1, len(curve) // 30)
    return [
        f"{one['at']:7.1f} s{one['handled']:10,.0f} handled{one['held']:8,.0f} held"
        f"{one['held_mib']:6.0f} MiB bodies{one['mib']:8.1f} MiB resident  "
        + "#"
        * round(one["mib"] / most * width)
        for one in curve[::step]
    ]


def report(told: argparse.Namespace) -> str:
    cores, limits = Cores.pick(), FlowLimits()
    with broker(cores, Path(tempfile.gettempdir()), []) as server:
        fill(server.namesrv, TOPIC, QUEUES, told.count, b"x" * told.body)
        curve = watched(server, told.seconds, cores.generator)
    bound = QUEUES * (limits.count + 32)
    most = max(one["held"] for one in curve)
    later = [one["mib"] for one in curve[len(curve) // 4 :]]
    return "\n".join(
        [
            machine(cores, None).rpartition("\n")[0],
            f"backlog    {told.count} messages of {told.body} bytes, a handler of {HANDLER_S} s",
            "",
            *drawn(curve),
            "",
            f"held at most {most:,.0f} messages; the limits allow {bound:,}: "
            + ("kept" if most <= bound else "MISSED"),
            f"resident {min(later):.1f} to {max(later):.1f} MiB over the last three quarters, "
            f"{curve[0]['mib']:.1f} before the start",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--save", default="")
    for hidden in ("--watch", "--broker"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, default=-1, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.watch:
        pin(os.getpid(), told.cpu)
        print(json.dumps(asyncio.run(watch(told.watch, told.broker, told.seconds))))
        return
    text = report(told)
    print(text)
    save(told.save, text)


if __name__ == "__main__":
    main()
