"""Records without a checksum of their own: damaged where all were written with one, else served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq.cli.main import run
from store.inspected_store import SIZES, verify

if TYPE_CHECKING:
    from store.conftest import StoreHarness

BODIES = [b"%d" % number for number in range(9)]
WITHOUT_ONE = [BODIES[0], *BODIES[2:]]


async def fill_and_damage(harness: StoreHarness, at: int) -> None:
    """Nine messages in a stopped store, and a bit less in the checksum of the second one."""
    harness.open(commit_log_file_bytes=4096)
    for body in BODIES:
        await harness.put(body)
    await harness.stop()
    path = harness.log_files()[0]
    raw = bytearray(path.read_bytes())
    end = raw.find(b"__CRC32#", raw.find(b"__CRC32#") + 1) + 20
    raw[end + at] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("at", [-20, -12, -8])
def test_a_record_whose_own_checksum_is_damaged_is_lost_and_never_given_out(
    run_scenario, caplog, capsys, at
):
    """A bit of its name, of what ends its name, or of its digits: no message is taken for whole."""

    async def scenario(harness):
        await fill_and_damage(harness, at)
        report = verify(harness)
        assert (len(report.damage), report.doubts) == (1, [])
        store = harness.open()
        assert harness.bodies() == WITHOUT_ONE
        assert caplog.text.count("queue 0 offset 1: its record is damaged") == 1
        place, _, _ = store.entry("T", 0, 1)
        assert store.record_at(place) is None
        await harness.stop()
        assert run(["store", "repair", str(harness.root), *SIZES, "--accept-loss"]) == 0
        capsys.readouterr()
        harness.open()
        assert harness.bodies() == WITHOUT_ONE
        await harness.stop()
        assert run(["store", "verify", str(harness.root), *SIZES]) == 0
        assert capsys.readouterr().out.endswith("whole\n")

    run_scenario(scenario)


def test_what_another_broker_may_have_written_without_a_checksum_is_in_doubt_and_served(
    run_scenario, capsys
):
    async def scenario(harness):
        await fill_and_damage(harness, -20)
        path = harness.root / "checkpoint"
        raw = bytearray(path.read_bytes())
        raw[7] ^= 1  # a time, as another broker writes it: what is ours does not count any more
        path.write_bytes(raw)
        (said,) = verify(harness).doubts
        assert "(T queue 0 offset 1) has no checksum of its own, as those around it have" in said
        assert run(["store", "verify", str(harness.root), *SIZES]) == 0
        out = capsys.readouterr().out
        assert "in doubt: the record at byte" in out
        assert out.endswith("nothing is lost\n")
        harness.open()
        assert harness.bodies() == BODIES
        await harness.stop()

    run_scenario(scenario)


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_what_was_written_without_checksums_is_given_out_whatever_comes_later(
    run_scenario, caplog, end
):
    async def scenario(harness):
        bodies = []
        for life, append_crc in enumerate((True, False, True, False, False, True, True)):
            harness.open(commit_log_file_bytes=4096, append_crc=append_crc)
            for number in range(3):
                bodies.append(b"%d %d" % (life, number))
                await harness.put(bodies[-1])
            assert harness.bodies() == bodies
            await (harness.stop() if end == "stop" else harness.crash())
            assert verify(harness).damage == []
        harness.open()
        assert harness.bodies() == bodies
        assert "damaged" not in caplog.text

    run_scenario(scenario)


def test_after_a_repair_all_records_are_known_to_have_checksums_again(run_scenario):
    """A repair takes the checkpoint away; the start after it reads every record."""

    async def scenario(harness):
        await fill_and_damage(harness, -20)
        assert run(["store", "repair", str(harness.root), *SIZES, "--accept-loss"]) == 0
        harness.open()
        await harness.stop()
        path = harness.log_files()[0]
        raw = path.read_bytes()
        at = raw.rfind(b"__CRC32#")
        path.write_bytes(raw[:at] + b"x" + raw[at + 1 :])
        assert [line for line in verify(harness).damage if "a start refuses" in line]

    run_scenario(scenario)
