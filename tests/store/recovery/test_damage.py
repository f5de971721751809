"""Every kind of damage to every kind of file: `store verify` and the start agree, never silent.

Each case damages a copy of a real store that was stopped or killed, has `verify` judge it, starts
it, and reads everything. What the log holds is there, in order and with its tags; else `verify` has
named what is lost, and a start that refuses is mended by `cometmq store repair`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from cometmq.cli.main import run
from cometmq.errors import ProtocolError, StoreCorrupt, StoreError
from cometmq.wire.records import log_record as stored
from oracle_runs import record_run
from store.conftest import StoreHarness, small, tags_code
from store.inspected_store import LAYOUT, SIZES, edit, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cometmq.store.recovery.inspection import InspectionReport

QUEUES = [("T", 0), ("T", 1), ("U", 0)]
WHOLE = {queue: [b"%d" % n for n in range(i, 130, 3)] for i, queue in enumerate(QUEUES)}


async def _fill(harness: StoreHarness) -> None:
    """Log, queues and index of several files; the checkpoint is not the end, the queues are."""
    harness.open(commit_log_file_bytes=4096)
    for number in range(130):
        harness.clock.ms += 100
        await harness.put(b"%d" % number, *QUEUES[number % 3])
        if number in (50, 100):
            await harness.store.lookup.catch_up()
            await harness.store._maintenance.checkpoint_queues()
    await harness.store.lookup.catch_up()
    await harness.store._maintenance.write_queues()


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store that was stopped, and one that was killed."""

    async def make(how: str) -> Path:
        harness = StoreHarness(tmp_path_factory.mktemp(how))
        await _fill(harness)
        await (harness.stop() if how == "stop" else harness.crash())
        return harness.root

    return {how: asyncio.run(make(how)) for how in ("stop", "kill")}


@pytest.fixture(params=["stop", "kill"])
def damaged(request, templates, harness) -> StoreHarness:
    """A harness on a copy of one of them."""
    shutil.copytree(templates[request.param], harness.root)
    harness.settings = small(commit_log_file_bytes=4096)
    return harness


class Held(NamedTuple):
    """The bodies of each queue that records of a log have."""

    by_queue: dict[tuple[str, int], list[bytes]]
    unsealed: set[bytes]
    """Bodies that are whole, of records whose own checksum is gone: as other brokers write them."""

    def sealed(self, queue: tuple[str, int]) -> list[bytes]:
        """The bodies of the queue whose records are whole by their own checksum."""
        return [body for body in self.by_queue[queue] if body not in self.unsealed]


def held_by_log(root: Path) -> Held:
    """What the log holds, found without the store."""
    found: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in QUEUES}
    unsealed = set()
    for path in sorted((root / "commitlog").iterdir()):
        if not path.name.isdecimal():
            continue
        raw = path.read_bytes().ljust(4096, b"\0")
        at = 0
        while (at := raw.find(b"\xda\xa3\x20\xa7", at + 1)) >= 0:
            try:
                record = stored.decode(raw, at - 4)
            except ProtocolError:
                continue
            place = record.phy_offset == int(path.name) + at - 4
            if place and stored.is_whole(record, raw, at - 4) and record.topic != "LOST":
                found[record.topic, record.queue_id][record.queue_offset] = record.body
                if record.properties[-stored.CRC_BYTES : -11] != stored.CRC_MARK:
                    unsealed.add(record.body)
    by_queue = {queue: [bodies[n] for n in sorted(bodies)] for queue, bodies in found.items()}
    return Held(by_queue, unsealed)


def read(harness: StoreHarness) -> dict[tuple[str, int], list[bytes]]:
    """What consumers get that subscribe to the tag of every message."""
    wanted = tags_code("T", b"TAGS\x01a\x02", 0)
    found: dict[tuple[str, int], list[bytes]] = {}
    for queue in QUEUES:
        bodies, offset = found.setdefault(queue, []), 0
        while offset < harness.store.max_offset(*queue):
            got = harness.store.get(*queue, offset, 32, 1 << 30, lambda code: code == wanted)
            records = list(stored.iterate(got.body))
            assert len(records) == got.count
            bodies += [record.body for record in records]
            assert got.next_offset > offset
            offset = got.next_offset
    return found


async def judge(harness: StoreHarness, caplog, capsys) -> str:
    """Verify, start and read; how it ended. Fails when they disagree or anything is silent."""
    caplog.set_level(logging.WARNING, "cometmq.store")
    before = held_by_log(harness.root)
    try:
        report = verify(harness)
    except StoreError as refused:
        with pytest.raises(type(refused), match=re.escape(str(refused))):
            harness.open()
        return "refused"
    is_said = any("unfinished" in note or "are lost" in note for note in report.notes)
    assert before.by_queue == WHOLE or report.damage or is_said, "the loss is silent"
    outcome = await _start(harness, report, before, caplog, capsys)
    compare(read(harness), before, report)
    found = (await harness.store.lookup.query("T", "a", 1000, 0, 1 << 60, is_tag=True)).records
    bodies = [stored.decode(raw).body for raw in found]
    assert [body for body in bodies if body not in before.unsealed] == sorted(
        before.sealed(("T", 0)) + before.sealed(("T", 1)), key=int
    )
    await harness.stop()
    after = verify(harness)
    assert (after.damage, after.notes, after.repairs) == ([], [], [])
    return outcome


def compare(got: dict[tuple[str, int], list[bytes]], held: Held, report: InspectionReport) -> None:
    """Fail unless consumers get what the log holds, in order.

    A record without a checksum of its own is kept, unless `verify` has said something of it: the
    damage may have taken its tag as well, or it is the unfinished end.
    """
    for queue, bodies in held.by_queue.items():
        assert got[queue] == [
            body for body in bodies if body not in held.unsealed or body in got[queue]
        ]
        is_said = report.damage or "queue" in str(report.notes + report.repairs)
        assert got[queue] == bodies or is_said, "a record without its checksum is lost silently"


async def _start(
    harness: StoreHarness, report: InspectionReport, before: Held, caplog, capsys
) -> str:
    """Start, and repair where `verify` says so; how it went."""
    repair = ["store", "repair", str(harness.root), *SIZES]
    if any("a start refuses" in line for line in report.damage):
        with pytest.raises(StoreCorrupt, match="accept-loss"):
            harness.open()
        assert run(repair) == 1
        assert "nothing was changed" in capsys.readouterr().out
        assert run([*repair, "--accept-loss"]) == 0
        harness.open()
        return "lost"
    harness.open()
    if any("does not agree" in note for note in report.notes):
        assert "anew" in caplog.text
    if "anew" in caplog.text:
        assert report.notes or report.repairs, caplog.text
    if report.damage and not report.repairs:
        compare(read(harness), before, report)
    if not (report.repairs or report.damage):
        return "mended" if report.notes else "whole"
    await harness.stop()
    report = verify(harness)
    assert run([*repair, "--accept-loss"] if report.damage else repair) == 0
    harness.open()
    return "lost" if report.damage else "repaired"


def cut(path: Path) -> None:
    size = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.truncate(size // 2)


def cut_in_tag(path: Path) -> None:
    size = -(-len(path.read_bytes().rstrip(b"\0")) // 20) * 20
    with path.open("r+b") as file:
        file.truncate(size - 8)


def zeroed(path: Path) -> None:
    size = len(path.read_bytes().rstrip(b"\0"))
    edit(
        path, lambda raw: raw.__setitem__(slice(size // 3, size // 2), bytes(size // 2 - size // 3))
    )


def one_entry(at: int, change: int) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        edit(path, lambda raw: raw.__setitem__(20 + at, raw[20 + at] ^ change))

    return harm


def garbage(path: Path) -> None:
    edit(path, lambda raw: raw.__setitem__(slice(40, 200), Random(1).randbytes(160)))


def gone(path: Path) -> None:
    path.unlink()


def of_another_topic(path: Path) -> None:
    other = path.parents[2] / ("U" if path.parts[-3] == "T" else "T") / "0" / path.name
    path.write_bytes(other.read_bytes())


def strange_name(path: Path) -> None:
    (path.parent / "copy of a file").write_bytes(b"x" * 400)


def file_beyond(path: Path) -> None:
    last = max(int(each.name) for each in path.parent.iterdir())
    (path.parent / f"{last + 400:020d}").write_bytes(Random(2).randbytes(400))


def file_far_beyond(path: Path) -> None:
    last = max(int(each.name) for each in path.parent.iterdir())
    (path.parent / f"{last + 4000:020d}").write_bytes(Random(3).randbytes(400))


QUEUE_HARMS = {
    "cut": cut,
    "cut in a tag": cut_in_tag,
    "zeroed": zeroed,
    "offset": one_entry(7, 64),
    "size": one_entry(11, 1),
    "tag": one_entry(19, 1),
    "garbage": garbage,
    "gone": gone,
    "other topic": of_another_topic,
}


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("harm", QUEUE_HARMS)
def test_a_damaged_queue_file_is_built_anew(damaged, run_scenario, caplog, capsys, harm, which):
    async def scenario(harness):
        files = sorted((harness.root / "consumequeue/T/1").iterdir())
        assert len(files) == 3
        QUEUE_HARMS[harm](files[["first", "middle", "last"].index(which)])
        assert await judge(harness, caplog, capsys) in ("mended", "repaired")

    run_scenario(scenario)


def test_a_queue_that_is_gone_is_built_anew(damaged, run_scenario, caplog, capsys):
    async def scenario(harness):
        shutil.rmtree(harness.root / "consumequeue/U")
        assert await judge(harness, caplog, capsys) == "mended"

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("harm", "outcome"),
    [(strange_name, "refused"), (file_beyond, "mended"), (file_far_beyond, "mended")],
)
def test_a_file_too_many_in_a_queue_is_removed_or_refused(
    damaged, run_scenario, caplog, capsys, harm, outcome
):
    async def scenario(harness):
        harm(harness.root / "consumequeue/T/1" / ("0" * 20))
        assert await judge(harness, caplog, capsys) == outcome

    run_scenario(scenario)


def flip(path: Path) -> None:
    edit(path, lambda raw: raw.__setitem__(1500, raw[1500] ^ 8))


def zero_record(path: Path) -> None:
    raw = path.read_bytes()
    size = int.from_bytes(raw[:4])
    edit(path, lambda raw: raw.__setitem__(slice(size, 3 * size), bytes(2 * size)))


LOG_HARMS = {"flip": flip, "zeroed": zero_record, "cut": cut, "gone": gone, "garbage": garbage}


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("harm", LOG_HARMS)
def test_what_damage_to_the_log_takes_is_named_and_the_rest_stays(
    damaged, run_scenario, caplog, capsys, harm, which
):
    async def scenario(harness):
        files = sorted((harness.root / "commitlog").iterdir())
        assert len(files) > 3
        LOG_HARMS[harm](files[{"first": 0, "middle": 2, "last": -1}[which]])
        # Files at the begin may be gone for their age, too: that is said, and there is no choice.
        expected = ("mended", "repaired") if (harm, which) == ("gone", "first") else ("lost",)
        assert await judge(harness, caplog, capsys) in expected

    run_scenario(scenario)


@pytest.mark.parametrize("name", ["checkpoint", "queueChecksums", "abort"])
@pytest.mark.parametrize("harm", ["gone", "zeroed", "cut", "garbage"])
def test_damage_to_a_small_file_loses_nothing(damaged, run_scenario, caplog, capsys, name, harm):
    async def scenario(harness):
        path = harness.root / name
        if harm == "gone":
            path.unlink(missing_ok=True)
        else:
            raw = path.read_bytes() if path.exists() else b""
            path.write_bytes(
                {"zeroed": bytes(4096), "cut": raw[:30], "garbage": Random(4).randbytes(4096)}[harm]
            )
        assert await judge(harness, caplog, capsys) in ("whole", "mended")

    run_scenario(scenario)


def zero_entries(path: Path) -> None:
    at = LAYOUT.entries_at + 7 * 20
    edit(path, lambda raw: raw.__setitem__(slice(at, at + 100), bytes(100)))


def wild_slots(path: Path) -> None:
    edit(path, lambda raw: raw.__setitem__(slice(400, 900), Random(5).randbytes(500)))


def wild_head(path: Path) -> None:
    edit(path, lambda raw: raw.__setitem__(slice(0, 40), Random(6).randbytes(40)))


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize(
    ("harm", "outcomes"),
    [
        (cut, ("mended",)),
        (gone, ("mended", "whole", "repaired")),
        (wild_head, ("mended", "repaired")),
        (zero_entries, ("repaired",)),
        (wild_slots, ("repaired", "mended")),
    ],
)
def test_damage_to_the_key_index_is_said_and_mended(
    damaged, run_scenario, caplog, capsys, harm, outcomes, which
):
    async def scenario(harness):
        files = sorted((harness.root / "index").iterdir())
        assert len(files) > 2
        harm(files[0 if which == "first" else -1])
        assert await judge(harness, caplog, capsys) in outcomes

    run_scenario(scenario)


OF_THE_INDEX = (1664, 1837)
"""Seeds that damage slots beside a second broken file, and a link between entries."""


def _random_harm(root: Path, rng: Random) -> str:
    """Damage one file anywhere; what was done."""
    directory = root / rng.choice(("consumequeue", "commitlog", "index", "commitlog"))
    path = rng.choice(sorted(p for p in directory.rglob("*") if p.is_file()))
    raw = bytearray(path.read_bytes())
    used = max(len(raw.rstrip(b"\0")), 1)
    at = rng.randrange(used)
    length = rng.choice((1, 1, 7, 20, 300))
    how = rng.choice(("flip", "zero", "noise", "cut", "gone", "moved"))
    if how == "flip":
        raw[at] ^= 1 << rng.randrange(8)
    elif how == "zero":
        raw[at : at + length] = bytes(len(raw[at : at + length]))
    elif how == "noise":
        raw[at : at + length] = rng.randbytes(len(raw[at : at + length]))
    elif how == "moved":
        raw[at : at + length] = raw[:length][: len(raw[at : at + length])]
    path.write_bytes(raw[:at] if how == "cut" else raw)
    if how == "gone":
        path.unlink()
    return f"{how} {length} at {at} of {path.relative_to(root)}"


def _random_rounds(templates, tmp_path, caplog, capsys, seeds: Iterable[int]) -> Counter[str]:
    """Damage and judge a copy for each seed; how often each outcome was, and what was compared."""
    happened: Counter[str] = Counter()

    async def one(harness: StoreHarness) -> str:
        try:
            return await judge(harness, caplog, capsys)
        finally:
            if hasattr(harness, "store"):
                await harness.store.stop()

    for seed in seeds:
        rng = Random(seed)
        harness = StoreHarness(tmp_path / str(seed))
        shutil.copytree(templates[rng.choice(("stop", "kill"))], harness.root)
        harness.settings = small(commit_log_file_bytes=4096)
        done = [_random_harm(harness.root, rng) for _ in range(rng.choice((1, 1, 2)))]
        held = held_by_log(harness.root).by_queue
        caplog.clear()
        try:
            outcome = asyncio.run(one(harness))
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {done}: {failure}") from failure
        happened.update({"damages": len(done), outcome: 1})
        if outcome != "refused":
            happened["messages_compared"] += sum(map(len, held.values()))
        shutil.rmtree(harness.root)
    return happened


def test_random_damage_is_mended_or_named(templates, tmp_path, caplog, capsys):
    _random_rounds(templates, tmp_path, caplog, capsys, [*range(12), *OF_THE_INDEX])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_much_random_damage_is_mended_or_named(templates, tmp_path, caplog, capsys):
    happened = _random_rounds(templates, tmp_path, caplog, capsys, range(1_000, 2_000))
    replay = "pytest -m slow tests/store/recovery/test_damage.py"
    record_run("damage", replay=replay, **happened)
    assert {"whole", "mended", "repaired", "lost"} <= happened.keys()
