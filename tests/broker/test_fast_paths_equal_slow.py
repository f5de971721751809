"""Whatever clients send, a broker with fast paths answers and stores byte for byte as one without.

Two brokers get the same bytes at the same virtual times, cut at the same places; one of them has no
fast paths. All answers, the files of the log and of the queues and the counters must be equal. Only
the order of answers may differ: those of the fast paths leave at the end of a loop iteration. No
request here is without UNIQ_KEY, which a broker would make of its process and time.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.harness import STORE, new_disk, run, running
from cometmq.broker.pulls.pull_fast_path import PullFastPath
from cometmq.broker.sends.send_fast_path import ConnectionFastPath
from cometmq.settings.store import StoreSettings
from cometmq.wire import header_json
from cometmq.wire.frame import FrameDecoder, encode_frame
from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

if TYPE_CHECKING:
    from cometmq.testing.sim_files import SimFiles

pytestmark = pytest.mark.usefixtures("each_form")

SMALL = {"commit_log_file_bytes": 1 << 16, "consume_queue_file_bytes": 4_000}
BORN_MS = 1_700_000_000_000
FIRST_S, STEP_S = 5.0, 0.005


@dataclass(frozen=True)
class Outcome:
    """All that a broker did."""

    answers: list[bytes]
    files: dict[str, bytes | None]
    counted: dict[str, tuple[int, int]]


class Received(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data


def pairs(items: list[tuple[str, str]]) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in items)


def send(number: int, body: bytes, **more: Any) -> bytes:
    """A frame as Java's client writes it; `number` makes the opaque and the UNIQ_KEY."""
    key = more.get("key", f"AC1100021F9018B4AAC2{number:012X}")
    properties = pairs([("UNIQ_KEY", key), *more.get("items", [("WAIT", "true")])])
    if more.get("is_bare"):
        properties = properties.removesuffix("\x02")
    ext = {
        "a": "PG",
        "b": more.get("topic", "T"),
        "c": "TBW102",
        "d": "4",
        "e": str(more.get("queue_id", number % 4)),
        "f": str(more.get("sys_flag", 0)),
        "g": str(BORN_MS + more.get("born", number // 3)),
        "h": str(more.get("flag", 0)),
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "b0",
    }
    if more.get("is_v1"):
        names = (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId"),
            *("sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode"),
            *("batch", "bname"),
        )
        ext = dict(zip(names, ext.values(), strict=True))
    code, flag = (10 if more.get("is_v1") else 310), more.get("request_flag", 0)
    return encode_frame(header_json.encode(code, number, flag, 0, 479, None, ext), body)


def batch(number: int, messages: list[tuple[bytes, str]], **more: Any) -> bytes:
    """A frame with a batch, as Java's client writes it: bodies and properties of its messages."""
    ext = {
        "a": "PG",
        "b": more.get("topic", "T"),
        "c": "TBW102",
        "d": "4",
        "e": str(more.get("queue_id", number % 4)),
        "f": str(more.get("sys_flag", 0)),
        "g": str(BORN_MS + number // 3),
        "h": "0",
        "i": more.get("properties", "WAIT\x01true\x02"),
        "j": "0",
        "k": "false",
        "m": "true",
    }
    items = [
        BatchItem(more.get("flag", 0), body, f"UNIQ_KEY\x01K{number:08}{at}\x02{raw}".encode())
        for at, (body, raw) in enumerate(messages)
    ]
    body = message_batch.encode(items)[: more.get("cut")]
    code = more.get("code", 320)
    return encode_frame(header_json.encode(code, number, 0, 0, 479, None, ext), body)


def pull(number: int, **more: Any) -> bytes:
    ext = {
        "commitOffset": str(more.get("commit", 0)),
        "consumerGroup": "CG",
        "expressionType": "TAG",
        "maxMsgNums": str(more.get("count", 32)),
        "queueId": str(more.get("queue_id", number % 4)),
        "queueOffset": str(more.get("offset", 0)),
        "subVersion": "0",
        "subscription": more.get("subscription", "*"),
        "suspendTimeoutMillis": "0",
        "sysFlag": str(more.get("sys_flag", 4)),
        "topic": more.get("topic", "T"),
    }
    return encode_frame(header_json.encode(11, number, 0, 0, 479, None, ext))


async def outcome(frames: list[bytes], cuts: list[int], sync: bool, has_fast: bool) -> Outcome:
    """What a broker makes of these frames, which come cut in pieces of these sizes in turn."""
    disk = new_disk()
    flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
    store = StoreSettings(
        **SMALL, flush_disk_type=flush, message_index_enable=False, max_message_bytes=3_000
    )
    async with running(store, disk=disk) as harness:
        broker = harness.broker
        broker.state.topics.ensure("T", 4)
        broker.state.topics.ensure("U", 2)
        if not has_fast:
            broker._server.fast_path = None
        await until(FIRST_S)  # by then the topics are on disk
        host, _, port = broker.address.rpartition(":")
        loop = asyncio.get_running_loop()
        transport, received = await loop.create_connection(Received, host, int(port))
        data, at, step = b"".join(frames), 0, 0
        while at < len(data):
            size = cuts[step % len(cuts)]
            transport.write(data[at : at + size])
            at, step = at + size, step + 1
            await until(FIRST_S + step * STEP_S)
        await until(FIRST_S + (step + 100) * STEP_S)
        answers = [
            encode_frame(each.header, each.body, each.serialize_type)
            for each in FrameDecoder().feed(bytes(received.data))
        ]
        counters = {
            topic: broker.state.stats.counter_of_puts(topic) for topic in ("T", "U", "%RETRY%CG")
        }
        counted = {topic: (each.count, each.bytes) for topic, each in counters.items()}
        transport.close()
    return Outcome(sorted(answers, key=opaque_of), files_of(disk), counted)


async def until(time_s: float) -> None:
    await asyncio.sleep(max(0.0, time_s - asyncio.get_running_loop().time()))


def opaque_of(frame: bytes) -> int:
    length = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
    return int(json.loads(frame[8 : 8 + length])["opaque"])


def files_of(disk: SimFiles) -> dict[str, bytes | None]:
    """The log and the queues, whole."""
    found: dict[str, bytes | None] = {}
    waiting = [STORE / "commitlog", STORE / "consumequeue"]
    while waiting:
        path = waiting.pop()
        data = disk.read(path) if disk.stat(path) else None
        if data is None:
            waiting += [path / name for name in disk.names(path)]
        else:
            found[str(path)] = data.rstrip(b"\0")
    return found


def compare(frames: list[bytes], cuts: list[int], *, sync: bool = False) -> Outcome:
    found: dict[bool, Outcome] = {}

    async def scenario(has_fast: bool) -> None:
        found[has_fast] = await outcome(frames, cuts, sync, has_fast)

    for has_fast in (False, True):
        run(scenario(has_fast))
    slow, fast = found[False], found[True]
    assert fast.answers == slow.answers
    assert fast.files == slow.files
    assert fast.counted == slow.counted
    return fast


texts = st.text("ab1 .:-%/", min_size=1, max_size=12) | st.text('é中\U0001f600"\\\x7f', max_size=3)
names = st.sampled_from(["KEYS", "TAGS", "WAIT", "city", "x", "__SHARDINGKEY", "TRACE_ON", "b%d"])
odd_names = st.sampled_from(
    [
        *("DELAY", "TRAN_MSG", "MSG_REGION", "CLUSTER", "POP_CK", "__RMQ.TRANSIENT.a", "UNIQ_KEY"),
        "_SYS_MSG_PRIORITY_",
    ]
)
odd_items = st.tuples(odd_names, st.sampled_from(["1", "true", "2x", ""]))
items = st.lists(st.tuples(names, texts), max_size=4) | st.lists(
    st.tuples(names, texts) | odd_items, max_size=3
)
kinds = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["T", "U", "V", "%RETRY%CG"]),
        "sys_flag": st.sampled_from([0, 1, 4, 16]),
        "flag": st.sampled_from([0, 7]),
        "request_flag": st.sampled_from([0, 2]),
        "is_v1": st.booleans(),
        "is_bare": st.booleans(),
    },
)
values = st.fixed_dictionaries(
    {"body": st.binary(max_size=40) | st.just(bytes(2_900)) | st.just(bytes(3_100))},
    optional={
        "queue_id": st.sampled_from([0, 1, 3, 4, 10, -1]),
        "key": st.sampled_from(["A", "with space", "é", "0" * 40]),
        "born": st.integers(0, 3),
    },
)
pulls = st.fixed_dictionaries(
    {"offset": st.integers(0, 12)},
    optional={
        "queue_id": st.sampled_from([0, 1, 9]),
        "count": st.sampled_from([1, 3, 32]),
        "commit": st.integers(0, 5),
        "sys_flag": st.sampled_from([4, 5]),
        "subscription": st.sampled_from(["*", "TagA", "a || b"]),
    },
)


batched = st.tuples(
    st.binary(max_size=20) | st.just(bytes(1_000)),
    st.sampled_from(
        ["", "TAGS\x01A\x02", "TAGS\x01é\x02", "KEYS\x01k", "DELAY\x011\x02", "CLUSTER\x01c"]
    ),
)
batches = st.fixed_dictionaries(
    {"messages": st.lists(batched, max_size=5)},
    optional={
        "topic": st.sampled_from(["T", "U", "V", "%RETRY%CG"]),
        "sys_flag": st.sampled_from([0, 1, 4]),
        "flag": st.sampled_from([0, 7]),
        "queue_id": st.sampled_from([0, 3, 9, -1]),
        "properties": st.sampled_from(
            ["", "WAIT\x01false\x02", "UNIQ_KEY\x01u\x02", "UNIQ_KEY\x01é\x02a\x01b", "a\x01é\x02"]
        ),
        "code": st.sampled_from([320, 310]),
        "cut": st.sampled_from([None, 30, 3]),
    },
)


@st.composite
def sessions(draw: st.DrawFn) -> list[bytes]:
    """Frames of few kinds, each sent several times with values of its own, and pulls between."""
    frames: list[bytes] = []
    number = draw(st.sampled_from([1, 7, 95, 99_999_990, 999_999_990]))
    for kind in draw(st.lists(kinds, min_size=1, max_size=3)):
        names_and_values = draw(items)
        for _ in range(draw(st.integers(1, 9))):
            more = {**draw(values), **kind}
            own = [(name, draw(texts)) for name, _ in names_and_values]
            chosen = draw(st.sampled_from([names_and_values, names_and_values, own]))
            frames.append(send(number, items=chosen, **more))
            number += 1
        for _ in range(draw(st.integers(0, 3))):
            frames.append(batch(number, **draw(batches)))
            frames.append(batch(number + 1, [(b"one", "TAGS\x01A\x02"), (b"two", "")]))
            number += 2
        if draw(st.booleans()):
            asked = draw(pulls)
            for offset in range(2):
                again = {**asked, "offset": asked["offset"] + offset}
                frames.append(pull(number, **again))
                number += 1
    return frames


WINDOW = [send(100 + n, b"x" * (n % 5 + 1), items=[("KEYS", f"k{n:03}")]) for n in range(40)]


@settings(max_examples=60, deadline=None)
@example(WINDOW, [1 << 16], False)
@example(WINDOW, [700], True)
@given(sessions(), st.lists(st.sampled_from([1, 40, 300, 700, 5_000]), min_size=1), st.booleans())
def test_all_answers_files_and_counters_are_equal(
    frames: list[bytes], cuts: list[int], sync: bool
) -> None:
    if min(cuts) == 1:
        cuts = [*cuts, 5_000]  # else a session takes thousands of steps
    compare(frames, cuts, sync=sync)


def test_the_fast_paths_take_most_of_ordinary_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the property says nothing: sends one by one, in runs, of changing kinds, and pulls."""
    taken, put_together, put_batches, pulled = [], [], [], []
    put_batch = ConnectionFastPath._put_batch
    chunk, put_many, take = (
        ConnectionFastPath.chunk,
        ConnectionFastPath._put_many,
        PullFastPath.take,
    )
    monkeypatch.setattr(
        ConnectionFastPath, "chunk", lambda *a: taken.append(chunk(*a)) or taken[-1]
    )
    monkeypatch.setattr(
        ConnectionFastPath,
        "_put_many",
        lambda *a: put_together.append(put_many(*a)) or put_together[-1],
    )
    monkeypatch.setattr(
        ConnectionFastPath,
        "_put_batch",
        lambda *a: put_batches.append(put_batch(*a)) or put_batches[-1],
    )
    monkeypatch.setattr(PullFastPath, "take", lambda *a: pulled.append(take(*a)) or pulled[-1])
    kinds_of = [[(f"n{at}", "v" * (at + 1)) for at in range(n % 7)] for n in range(40)]
    alone = [
        *[send(500 + n, b"one", items=each) for n, each in enumerate(kinds_of)],
        *[batch(700 + n, [(b"a", ""), (b"b", "TAGS\x01A\x02")]) for n in range(5)],
        *[batch(750 + n, [(b"a", "")], properties=f"UNIQ_KEY\x01u{n}\x02") for n in range(5)],
        *[pull(900 + n, offset=n) for n in range(5)],
    ]
    windows = [sum(map(len, WINDOW[:2])), sum(map(len, WINDOW[2:]))]
    compare([*WINDOW, *alone], [*windows, *map(len, alone)])
    assert any(put_together)
    assert put_batches.count(True) == 9
    assert sum(map(bool, taken)) > 35
    assert sum(map(bool, pulled)) == 4
