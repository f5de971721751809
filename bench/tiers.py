"""What each fast path is worth: CPU us a message with it and without it, in turns in one process.

    python bench/tiers.py                   every tier, about four minutes
    python bench/tiers.py --only runs       tiers whose name contains the text
    python bench/tiers.py --rounds 30       more rounds, for a busy machine
    python bench/tiers.py --json            one JSON object instead of the table

Tiers are measured with the hot loops in Python, which they are made of; a line of its own says what
those in C are worth beside all of them.

The broker's connections get real frames, and its store writes real files; only the sockets are left
out, so other tenants of the machine disturb little. Rounds with a tier and without it alternate. Of
each the quickest fifth of its loop iterations counts, and the best of these of all rounds. The key
index is off: it works behind the answers and is the same either way. Per cent are of the whole path
without the tier: what was measured here and what sockets, kernel and loop take beside it (WIRE_US,
from bench/run.py).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import platform
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from cometmq import native
from cometmq.broker.app import Broker
from cometmq.broker.pulls.pull_fast_path import PullFastPath
from cometmq.broker.sends.batch_writer import BatchWriter
from cometmq.broker.sends.plain_batches import PlainBatchWriter
from cometmq.broker.sends.send_fast_path import ConnectionFastPath
from cometmq.broker.sends.send_fast_path_plan import SendPlanner
from cometmq.client.consumer import message_decoder
from cometmq.net.server import ServerProtocol
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.store.log.record_template import RecordPositions, RecordTemplate
from cometmq.store.message_draft import MessageDraft
from cometmq.store.put_result import PutStatus
from cometmq.wire.command import Command
from cometmq.wire.frame import JSON, Frame, FrameDecoder, encode_frame
from cometmq.wire.frame_buffer import FrameBuffer
from cometmq.wire.records import log_record, message_batch, properties
from cometmq.wire.records import log_record_batch_decoder as log_record_run
from cometmq.wire.templates import header_template
from cometmq.wire.templates.send_frame_batch import FrameColumns
from cometmq.wire.templates.send_response import SendResponseLayouts
from cometmq.wire.templates.send_template import SendTemplate, SendTemplates

if TYPE_CHECKING:
    from collections.abc import Callable

    Rounds = list[list[tuple[int, bytes]]]
    Patches = Callable[[Broker], list[Any]]

TOPIC, QUEUES = "bench128", 8
SEND = (
    '{"code":%d,"extFields":{"a":"bench","b":"bench128","c":"TBW102","d":"8","e":"%d","f":"0",'
    '"g":"%d","h":"0","i":"%s","j":"0","k":"false","m":"%s","n":"broker-a"},"flag":0,'
    '"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
)
PULL = (
    '{"code":11,"extFields":{"commitOffset":"0","consumerGroup":"bench","expressionType":"TAG",'
    '"maxMsgNums":"32","queueId":"%d","queueOffset":"%d","subVersion":"0","subscription":"*",'
    '"suspendTimeoutMillis":"0","sysFlag":"4","topic":"bench128"},"flag":0,"language":"JAVA",'
    '"opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
)
ANSWER = (
    '{"code":0,"extFields":{"msgId":"7F00000100002A9F%016X","queueId":"%d","queueOffset":"%d",'
    '"transactionId":"AC1100021F9018B4AAC2%012X","MSG_REGION":"DefaultRegion","TRACE_ON":"true"},'
    '"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
)
WIRE_US = {"64x1": 8.4, "1x64": 1.4, "16x16": 1.4, "pull 8x1": 18.0, "pull 8x8": 3.0}
TURNS = 5
"""Iterations of the loop until all is answered, on the slow path as well."""
serial = itertools.count(1)


class Sink:
    """A transport that forgets what is written."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def text(pairs: list[tuple[str, object]]) -> str:
    return "\\u0002".join(f"{name}\\u0001{value}" for name, value in pairs)


def unique(n: int) -> tuple[str, object]:
    return "UNIQ_KEY", f"AC1100021F9018B4AAC2{n:012X}"


def plain(n: int) -> str:
    return text([unique(n), ("WAIT", "true"), ("TAGS", "TagA")])


def keyed(n: int) -> str:
    return text([unique(n), ("KEYS", f"order-{n:010}"), ("WAIT", "true"), ("TAGS", "TagA")])


def varied(n: int) -> str:
    """One to seven properties of the user's, of any length, as a Java client orders them."""
    own = [(f"name{i}", "v" * (1 + (n * 7 + i * 5) % 23)) for i in range(n * 5 % 7 + 1)]
    return text([("KEYS", f"order-{n % 100_000}"), *own, unique(n), ("WAIT", "true")])


@dataclass(frozen=True)
class Shape:
    """So many connections and so many frames of each in a chunk."""

    wire: str
    connections: int
    window: int
    make: Callable[[int], str] = plain
    sizes: int = 1
    note: str = ""
    cut: int = 0
    """Bytes of a chunk, where frames are cut anywhere."""

    def frame(self) -> bytes:
        n = next(serial)
        born_ms = time.time_ns() // 1_000_000
        header = SEND % (310, n % QUEUES, born_ms, self.make(n), "false", 10_000_000 + n)
        return encode_frame(header.encode(), b"x" * (128 + n * 37 % self.sizes))

    def rounds(self, messages: int) -> Rounds:
        """What each loop iteration brings to each connection."""
        if self.cut:
            data = b"".join([self.frame() for _ in range(messages)])
            return [[(0, data[at : at + self.cut])] for at in range(0, len(data), self.cut)]
        return [
            [
                (at, b"".join([self.frame() for _ in range(self.window)]))
                for at in range(self.connections)
            ]
            for _ in range(messages // (self.connections * self.window))
        ]


def batches(messages: int) -> Rounds:
    """Eight connections that each send a batch of 32."""
    rounds: Rounds = []
    for _ in range(messages // 256):
        rounds.append([])
        for at in range(8):
            raws = [properties.encode(dict([unique(next(serial))])) for _ in range(32)]
            body = message_batch.encode([message_batch.BatchItem(0, bytes(128), r) for r in raws])
            n = next(serial)
            header = SEND % (320, n % QUEUES, time.time_ns() // 1_000_000, plain(n), "true", n)
            rounds[-1].append((at, encode_frame(header.encode(), body)))
    return rounds


def pulls(connections: int, window: int) -> Rounds:
    """Pulls of 32 from the eight queues in turn."""
    rounds: Rounds = []
    for step in range(160):
        rounds.append([])
        for at in range(connections):
            numbers = [next(serial) for _ in range(window)]
            headers = [PULL % (n % 8, 100 + step * 32 % 5_000, 10_000_000 + n) for n in numbers]
            rounds[-1].append((at, b"".join([encode_frame(each.encode()) for each in headers])))
    return rounds


class Bench:
    """A broker in this process and connections to it without sockets."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def feed(self, rounds: Rounds) -> float:
        """CPU us a chunk in the iterations that nobody disturbed; the first ones only teach."""
        made = [ServerProtocol(self.broker._server) for _ in rounds[0]]  # noqa: SLF001
        for each in made:
            each.connection_made(Sink())  # type: ignore[arg-type]
        warm = min(max(2, len(rounds) // 5), 80)
        spent = []
        for chunks in rounds:
            begun = time.process_time()
            for at, data in chunks:
                made[at].data_received(data)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            spent.append(time.process_time() - begun)
        for each in made:
            each.connection_lost(None)
        counted = sorted(spent[warm:])
        return counted[len(counted) // 5] / len(made) * 1e6

    async def compare(
        self, count: int, make: Callable[[], Rounds], off: Patches, *, in_c: bool
    ) -> tuple[float, float]:
        """The least CPU us of a chunk with a tier and without it; hot loops in C or in Python."""
        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * count):
            has_it = number % 2 == 0
            with ExitStack() as stack:
                # Connections last for seconds here: time to learn is not what is compared.
                stack.enter_context(patch.object(header_template, "LEARNING_AT_ONCE_MS", 10_000))
                stack.enter_context(patch.object(header_template, "LEARNING_SHARE", 1.0))
                if not in_c:
                    stack.enter_context(patch.object(native, "c", None))
                for each in [] if has_it else off(self.broker):
                    stack.enter_context(each)
                found[has_it].append(await self.feed(make()))
        return min(found[True]), min(found[False])


def no_c(_: Broker) -> list[Any]:
    return [patch.object(native, "c", None)]


def no_fast_path(_: Broker) -> list[Any]:
    return [
        patch.object(ConnectionFastPath, "chunk", lambda *_: 0),
        patch.object(ConnectionFastPath, "frame", lambda *_: False),
    ]


def no_runs(_: Broker) -> list[Any]:
    return [patch.object(SendTemplate, "run_at", lambda *_: None)]


def no_one_size(_: Broker) -> list[Any]:
    return [patch.object(FrameColumns, "_cut_alike", lambda *_: None)]


def puts_alone(_: Broker) -> list[Any]:
    def put_run(self: RecordTemplate, *columns: Any) -> RecordPositions:
        placed = [self.put(*row) for row in zip(*columns, strict=False)]
        logs, queues, sizes = zip(*[one for one in placed if one], strict=True)
        return RecordPositions(list(logs), list(queues), sum(sizes))

    return [patch.object(RecordTemplate, "put_run", put_run)]


def no_any_properties(_: Broker) -> list[Any]:
    make = SendTemplates._template  # noqa: SLF001

    def template(self: SendTemplates, raw: bytes, command: Command) -> SendTemplate | None:
        found = make(self, raw, command)
        return None if found is None or found.takes_all else found

    return [patch.object(SendTemplates, "_template", template)]


def no_single_frames(_: Broker) -> list[Any]:
    def frame(self: ConnectionFastPath, frame: Frame) -> bool:
        self._templates.match_or_learn(frame.header)
        return False

    return [patch.object(ConnectionFastPath, "frame", frame)]


def no_record_template(broker: Broker) -> list[Any]:
    decide, store = SendPlanner._decide, broker.store  # noqa: SLF001

    def deciding(self: SendPlanner, template: Any, connection: Any) -> Any:
        plan, header = decide(self, template, connection), template.header

        def put(queue_id: int, born_ms: int, body: bytes, raw: bytes, _: int) -> Any:
            draft = MessageDraft(
                header.topic,
                queue_id,
                body,
                raw,
                flag=header.flag,
                sys_flag=header.sys_flag,
                born_ms=born_ms,
                born_host=connection.host,
                reconsume_times=0,
            )
            placed = store.put(draft)
            assert placed.status is PutStatus.PUT_OK
            return placed.phy_offset, placed.queue_offset, placed.size

        plan.put, plan.put_run = plan.put and put, None
        return plan

    return [patch.object(SendPlanner, "_decide", deciding)]


def no_put_batch(_: Broker) -> list[Any]:
    return [
        patch.object(PlainBatchWriter, "put", lambda *_: None),
        patch.object(BatchWriter, "_put_plain", lambda *_: None),
    ]


def no_pulls(_: Broker) -> list[Any]:
    return [patch.object(PullFastPath, "take", lambda *_: 0)]


SINGLE, KEYS = Shape("64x1", 64, 1), Shape("64x1", 64, 1, keyed, note=", KEYS")
WINDOW, WINDOWS = Shape("1x64", 1, 64, keyed, note=", KEYS"), Shape("16x16", 16, 16)
MIXED = Shape("1x64", 1, 64, keyed, 57, ", bodies differ")
VARIED = Shape("64x1", 64, 1, varied, 57, ", 1 to 7 properties")
CUT = Shape("1x64", 1, 64, keyed, 900, ", cut at 16 KiB", 16 * 1024)
SENDS: tuple[tuple[str, tuple[Shape, ...], Patches], ...] = (
    ("hot loops in C", (SINGLE, KEYS, WINDOW, WINDOWS, MIXED), no_c),
    ("send fast path", (SINGLE, KEYS, WINDOW, WINDOWS, MIXED, VARIED), no_fast_path),
    ("record template", (SINGLE, KEYS), no_record_template),
    ("runs of frames", (WINDOW, WINDOWS, MIXED), no_runs),
    ("frames of one size", (WINDOW, WINDOWS, MIXED), no_one_size),
    ("records of a run together", (WINDOW, WINDOWS, MIXED), puts_alone),
    ("template of any properties", (VARIED,), no_any_properties),
    ("frames that came in parts", (CUT,), no_single_frames),
)


def alternate(count: int, fast: Callable[[], object], slow: Callable[[], object]) -> list[float]:
    """The least CPU us of two functions, called in turns."""
    best = [float("inf")] * 2
    for number in range(20 * count):
        begun = time.process_time()
        (fast, slow)[number % 2]()
        best[number % 2] = min(best[number % 2], (time.process_time() - begun) * 1e6)
    return best


class Waiter:
    def done(self) -> bool:
        return False

    def set_result(self, _: object) -> None: ...


def clients(count: int) -> list[tuple[str, str, float, float]]:
    """What a client's decoders take for a message or a pull; the network is not in it."""
    heads = [ANSWER % (n * 300, n % 8, 700 + n, n, 10_000_000 + n) for n in range(64)]
    frames = b"".join([encode_frame(one.encode()) for one in heads])
    answers, waiter = SendResponseLayouts(), Waiter()
    answers.learn(heads[0].encode(), Command.decode(Frame(JSON, heads[0].encode(), b"")))
    waiting = {10_000_000 + n: (waiter, 0.0) for n in range(64)}
    best = alternate(
        count,
        lambda: answers.tell(frames, dict(waiting)),
        lambda: [Command.decode(each) for each in FrameDecoder().feed(frames)],
    )
    found = [("client: answers cut", "64 in a row", best[0] / 64, best[1] / 64)]
    raw = properties.encode(dict([unique(1)]) | {"WAIT": "true", "TAGS": "TagA"})
    for note, sizes in (("32 of 128 B", 1), ("32, bodies differ", 57)):
        records = [
            log_record.encode(
                *(TOPIC, n % 8, 0, n, n * 300, 0, 1, bytes(8), 2, bytes(8), 0, 0),
                bytes(128 + n * 37 % sizes),
                raw,
            )
            for n in range(32)
        ]
        body = b"".join(records)

        def one_by_one(body: bytes = body) -> None:
            for record in log_record.iterate(body):
                message_decoder.decode_message(record, "b")

        def together(body: bytes = body) -> None:
            log_record_run.messages(body, 0, "b")

        best = alternate(count, together, one_by_one)
        found.append(("client: records decoded", note, best[0] / 32, best[1] / 32))
    for note, size in (("a pull of 9 KiB", 9), ("a pull of 90 KiB", 90)):
        frame = encode_frame(b"{}", bytes(size * 1024))
        pieces = [(frame * 8)[at : at + 65_536] for at in range(0, 8 * len(frame), 65_536)]
        best = alternate(count, lambda p=pieces: _buffered(p), lambda p=pieces: _fed(p))
        found.append(("client: frame buffer", note, best[0] / 8, best[1] / 8))
    return found


def _buffered(pieces: list[bytes]) -> None:
    buffer = FrameBuffer()
    for piece in pieces:
        at = 0
        while at < len(piece):
            room = buffer.room()
            size = min(len(room), len(piece) - at)
            room[:size] = piece[at : at + size]
            buffer.came(size)
            at += size
            while buffer.next() is not None:
                pass


def _fed(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()
    for piece in pieces:
        decoder.feed(bytes(bytearray(piece)))


async def measure(only: str, count: int, root: Path) -> list[dict[str, Any]]:
    broker = Broker.open(
        BrokerSettings(store_path_root_dir=str(root), broker_name="broker-a", listen_port=0),
        StoreSettings(message_index_enable=False),
    )
    await broker.start()
    lines: list[dict[str, Any]] = []

    def add(tier: str, shape: str, both: tuple[float, float], per: float, wire: str) -> None:
        fast, slow = both[0] / per, both[1] / per
        whole = slow + WIRE_US.get(wire, 0.0)
        share = (slow - fast) / whole if wire in WIRE_US or not wire else 0.0
        line = {"tier": tier, "shape": shape, "with": fast, "without": slow, "share": share}
        lines.append(line)
        print(row(line), flush=True)

    try:
        broker.state.topics.ensure(TOPIC, QUEUES)
        await asyncio.sleep(0.5)  # until it is on disk sends take the slow path
        bench = Bench(broker)
        for tier, shapes, off in SENDS:
            for shape in shapes if only in tier else ():
                make = lambda s=shape: s.rounds(3_200)  # noqa: E731
                both = await bench.compare(count, make, off, in_c=off is no_c)
                per = shape.cut / len(shape.frame()) if shape.cut else shape.window
                add(tier, shape.wire + shape.note, both, per, shape.wire)
        if only in "batches by template":
            both = await bench.compare(count, lambda: batches(5_120), no_put_batch, in_c=False)
            add("batches by template", "8 x 32 in a frame", both, 32, "")
        if only in "hot loops in C":
            both = await bench.compare(count, lambda: batches(5_120), no_c, in_c=True)
            add("hot loops in C", "8 x 32 in a frame", both, 32, "")
        while only in "pull fast path" and broker.store.max_offset(TOPIC, 0) < 5_500:
            await bench.feed(WINDOW.rounds(6_400))
        for connections, window in ((8, 1), (8, 8)) if only in "pull fast path" else ():
            make = lambda c=connections, w=window: pulls(c, w)  # noqa: E731
            name = f"pull {connections}x{window}"
            both = await bench.compare(count, make, no_pulls, in_c=False)
            add("pull fast path", f"{name}, 32 messages", both, window, name)
            both = await bench.compare(count, make, no_c, in_c=True)
            add("hot loops in C", f"{name}, 32 messages", both, window, name)
        for tier, shape, fast, slow in clients(count):
            if only in tier:
                add(tier, shape, (fast, slow), 1, "")
    finally:
        await broker.stop()
    return lines


def row(line: dict[str, Any]) -> str:
    gain = line["without"] - line["with"]
    return (
        f"{line['tier']:<28}{line['shape']:<26}{line['without']:>9.2f}{line['with']:>8.2f}"
        f"{gain:>8.2f}{line['share']:>7.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="tiers whose name contains this text")
    parser.add_argument("--rounds", type=int, default=9, help="rounds with and without each tier")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="cometmq-tiers-"))
    print(f"CPython {platform.python_version()}, asyncio; CPU us a message, of pulls a pull\n")
    print(f"{'tier':<28}{'shape':<26}{'without':>9}{'with':>8}{'gain':>8}{'share':>7}")
    try:
        lines = asyncio.run(measure(args.only, args.rounds, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if args.json:
        print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
