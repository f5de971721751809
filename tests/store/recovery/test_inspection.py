"""`cometmq store`: a stopped store is read, judged and left as it was."""

import json

import pytest

from cometmq.cli.main import run
from cometmq.errors import NotAStore
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.recovery.inspection import Inspection
from store.inspected_store import LAYOUT, SIZES, edit, verify


async def fill(harness):
    harness.open(commit_log_file_bytes=4096)
    for number in range(50):
        await harness.put(b"%d" % number, "T" if number % 5 else "U", number % 2)
    await harness.store._maintenance.write_queues()


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_whole_store_is_called_whole(run_scenario, how):
    async def scenario(harness):
        await fill(harness)
        end = harness.store.max_phy_offset
        await (harness.stop() if how == "stop" else harness.crash())
        report = verify(harness)
        assert (report.records, report.end, report.was_stopped) == (50, end, how == "stop")
        assert report.topics == {"T": 40, "U": 10}
        assert (report.damage, report.notes, report.queues) == ([], [], 4)

    run_scenario(scenario)


def test_entries_that_a_start_adds_need_no_repair_before_the_first_checkpoint(run_scenario):
    """A broker killed soon after its first start has written no entry yet."""

    async def scenario(harness):
        harness.open(commit_log_file_bytes=4096)
        for number in range(50):
            await harness.put(b"%d" % number)
        await harness.crash()
        report = verify(harness)
        assert (report.damage, report.repairs) == ([], [])
        assert report.notes == ["queue T 0 lacks 50 entries: the next start adds them"]
        harness.open()
        await harness.stop()
        report = verify(harness)
        assert (report.damage, report.repairs, report.notes) == ([], [], [])

    run_scenario(scenario)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_store_with_a_deleted_topic_is_whole_without_a_note(run_scenario, how):
    async def scenario(harness):
        await fill(harness)
        harness.store.delete_topic("U")
        await (harness.stop() if how == "stop" else harness.crash())
        report = verify(harness)
        assert report.topics == {"T": 40, "U": 10}
        assert (report.damage, report.notes, report.queues) == ([], [], 2)

    run_scenario(scenario)


@pytest.mark.parametrize("was_known", [True, False])
def test_old_files_that_went_by_retention_are_a_loss_only_where_we_know_of_them(
    run_scenario, caplog, was_known
):
    async def scenario(harness):
        await fill(harness)
        await harness.stop()
        harness.log_files()[0].unlink()
        if not was_known:  # as Apache's brokers and early versions leave a store
            (harness.root / "queueChecksums").unlink()
        report = verify(harness)
        assert any("the log begins at byte" in line for line in report.damage) == was_known
        harness.open(commit_log_file_bytes=4096)
        assert ("are lost" in caplog.text) == was_known

    run_scenario(scenario)


async def with_harmed_index(harness, harm):
    """A stopped store whose oldest index file has bytes changed."""
    await fill(harness)
    await harness.store.lookup.catch_up()
    await harness.stop()
    edit(min((harness.root / "index").iterdir()), harm)


def _no_entry(raw):
    at = LAYOUT.entries_at + 7 * 20
    raw[at : at + 20] = bytes(20)


def _wild_slot(raw):
    at = next(at for at in range(40, 6040, 4) if any(raw[at : at + 4]))
    raw[at : at + 4] = b"\x7f\xff\xff\xff"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda raw: raw.__delitem__(slice(-9, None)), "bytes, not"),
        (_no_entry, "1 entries are lacking"),
        (_wild_slot, "1 slots"),
        (lambda raw: raw.__setitem__(slice(36, 40), b"\0\0\xff\0"), "says it has"),
    ],
)
def test_what_is_wrong_with_the_index_is_noted_and_is_no_loss(run_scenario, harm, said):
    async def scenario(harness):
        await with_harmed_index(harness, harm)
        report = verify(harness)
        assert not report.damage
        assert any(said in note for note in report.notes + report.repairs), report

    run_scenario(scenario)


def test_missing_queues_are_noted_and_damage_is_reported(run_scenario):
    async def scenario(harness):
        await fill(harness)
        await harness.stop()
        (harness.root / "consumequeue/U/0" / ("0" * 20)).unlink()
        assert verify(harness).notes == [
            f"{harness.root}/consumequeue/U/0/{0:020d} does not agree with the log: "
            "the next start builds it anew"
        ]
        second = harness.log_files()[1]
        edit(second, _change(300, 1))
        report = verify(harness)
        assert any(f"{second} from byte" in line for line in report.damage)
        assert report.records < 50

    run_scenario(scenario)


def test_the_commands_print_and_exit_as_they_should(run_scenario, capsys):
    async def scenario(harness):
        await fill(harness)
        root = str(harness.root)
        assert run(["store", "verify", root]) == 1
        assert "in use" in capsys.readouterr().err
        await harness.store.lookup.catch_up()
        await harness.stop()
        assert run(["store", "verify", root]) == 0
        assert "as with 5000000 slots (maxHashSlotNum)" in capsys.readouterr().out
        assert run(["store", "verify", root, *SIZES]) == 0
        out = capsys.readouterr().out
        assert out.endswith("whole\n")
        assert "index" not in out
        assert run(["store", "dump", root, "--topic", "U", "--count", "3"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[3:7] for line in lines] == [
            ["U", "0", "0", "a"],
            ["U", "1", "0", "a"],
            ["U", "0", "1", "a"],
        ]
        assert run(["store", "dump", root, "--queue", "1", "--count", "1", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["topic"], facts["body"], facts["properties"]) == ("T", "1", {"TAGS": "a"})
        harness.log_files()[1].write_bytes(b"")
        assert run(["store", "verify", root]) == 1
        assert "LOST" in capsys.readouterr().out

    run_scenario(scenario)


def test_what_is_no_store_is_said_to_be_none(tmp_path):
    with pytest.raises(NotAStore, match="no commit log"):
        Inspection(tmp_path, SystemFiles())
    assert list(tmp_path.iterdir()) == []


def _change(at, by):
    def harm(raw):
        raw[at] ^= by

    return harm


LAST_LINK = LAYOUT.entries_at + 9 * 20 + 19


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_change(LAST_LINK, 1), "1 entries lead to a wrong one"),
        (_change(LAST_LINK - 4, 1), "1 times or places are wrong"),
        (_change(7, 1), "times or places are wrong"),
    ],
)
def test_a_broken_chain_or_time_of_the_index_is_to_be_repaired(run_scenario, harm, said):
    """A look-up would miss what lies behind, or leave it out for its time."""

    async def scenario(harness):
        await with_harmed_index(harness, harm)
        report = verify(harness)
        (line,) = report.repairs
        assert said in line
        assert "which no start sees: `cometmq store repair`" in line
        assert run(["store", "repair", str(harness.root), *SIZES]) == 0
        harness.open(commit_log_file_bytes=4096)
        await harness.store.lookup.catch_up()
        await harness.stop()
        assert not verify(harness).repairs

    run_scenario(scenario)
