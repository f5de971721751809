"""Messages at a time of their own: how late they come, how fast many do, what waiting ones cost.

    python bench/timers.py                     all three, about four minutes
    python bench/timers.py --waiting 100000    fewer that wait

- spread: 10,000 due at random moments of one minute; late by what the store time of the delivered
  message is beyond the time asked for.
- one second: 100,000 due in the same second; from that second's end until the last is delivered.
- waiting: the broker's memory before and after that many were sent, due over three days: what is
  resident, the mapped pages of the log included, and what is anonymous, the broker's own.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path
from random import Random

from cometmq.net.channel import Channel, connect
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties
from messages import pull_header, send_header
from servers import Cores, broker

QUEUES, WINDOW, TIMEOUT_S = 8, 256, 60.0
BODY = bytes(128)
DAY_MS = 86_400_000
SEND_S = 120
"""How long before their second the many messages begin to be sent."""


def memory(pid: int) -> str:
    """The memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    resident, own = (
        int(text.partition(f"{key}:")[2].split()[0]) // 1024 for key in ("VmRSS", "RssAnon")
    )
    return f"{resident} MiB resident, {own} MiB anonymous"


async def send_all(channel: Channel, topic: str, due_ms: list[int]) -> None:
    """Send one message for each time."""
    room, tasks = asyncio.Semaphore(WINDOW), set()

    async def send(number: int, at_ms: int) -> None:
        pairs = {"UNIQ_KEY": f"{number:032X}", "TIMER_DELIVER_MS": str(at_ms)}
        header = send_header(topic, number % QUEUES, QUEUES, **pairs)
        command = request(RequestCode.SEND_MESSAGE_V2, 0, header, BODY)
        answer = await channel.call(command, TIMEOUT_S)
        assert answer.code == 0, answer
        room.release()

    for number, at_ms in enumerate(due_ms):
        await room.acquire()
        task = asyncio.create_task(send(number, at_ms))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def read_all(channel: Channel, topic: str) -> list[stored.StoredRecord]:
    """All records of a topic."""
    found: list[stored.StoredRecord] = []
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            header = pull_header(topic, queue_id, offset)
            answer = await channel.call(request(RequestCode.PULL_MESSAGE, 0, header), TIMEOUT_S)
            if answer.code:
                break
            found += stored.iterate(answer.body)
            offset = int(answer.ext["nextBeginOffset"])
    return found


async def arrived(channel: Channel, topic: str, count: int) -> list[stored.StoredRecord]:
    """Wait until so many were delivered; twice would be more."""
    while True:
        found = await read_all(channel, topic)
        if len(found) >= count:
            assert len(found) == count, f"{len(found)} of {count}"
            return found
        await asyncio.sleep(1)


async def measure_spread(channel: Channel, count: int) -> str:
    """How late single messages are."""
    rng, begin_ms = Random(1), int(time.time() * 1_000) + 10_000
    due = [begin_ms + rng.randrange(60_000) for _ in range(count)]
    await send_all(channel, "Spread", due)
    await asyncio.sleep(max(0, max(due) / 1_000 - time.time()))
    found = await arrived(channel, "Spread", count)
    late = sorted(
        record.store_ms - int(properties.find(record.properties, b"TIMER_DELIVER_MS") or b"0")
        for record in found
    )
    return (
        f"spread      {count} due within 60 s: late by {late[0]} to {late[-1]} ms, "
        f"{late[count // 2]} ms (p50), {late[int(count * 0.999)]} ms (p99.9)"
    )


async def measure_second(channel: Channel, count: int) -> str:
    """How long the messages of one second take."""
    end_ms = (int(time.time()) + SEND_S) * 1_000
    await send_all(channel, "Second", [end_ms - number % 1_000 for number in range(count)])
    assert time.time() * 1_000 < end_ms - 1_000, "the sends took too long"
    await asyncio.sleep(end_ms / 1_000 - time.time())
    found = await arrived(channel, "Second", count)
    stored_ms = [record.store_ms for record in found]
    assert min(stored_ms) >= end_ms
    return f"one second  {count} due: all delivered {max(stored_ms) - end_ms} ms after it"


async def measure_waiting(channel: Channel, count: int, pid: int) -> str:
    """What waiting messages cost."""
    rng, now_ms = Random(2), int(time.time() * 1_000)
    before = memory(pid)
    for start in range(0, count, count // 4):
        due = [
            now_ms + rng.randrange(DAY_MS // 24, 3 * DAY_MS - DAY_MS // 24)
            for _ in range(count // 4)
        ]
        await send_all(channel, "Waiting", due)
        print(f"  {start + count // 4} wait: {memory(pid)}", flush=True)
    await asyncio.sleep(5)
    return f"waiting     {count}: {before} before; {memory(pid)} after"


async def measure(port: int, pid: int, args: argparse.Namespace) -> None:
    """Run all three."""
    channel = await connect(f"127.0.0.1:{port}")
    print(await measure_spread(channel, args.spread), flush=True)
    print(await measure_second(channel, args.second), flush=True)
    print(await measure_waiting(channel, args.waiting, pid), flush=True)
    channel.close()


def main() -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spread", type=int, default=10_000)
    parser.add_argument("--second", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    args = parser.parse_args()
    with broker(Cores.pick(), None, []) as server:
        asyncio.run(measure(server.port, server.pid, args))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
