"""`cometmq store`: what a start refuses is mended by the command it names; errors are sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.sockets import run, running
from cli.shell import cometmq, sentence
from cometmq.cli.main import run as command_line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_lost_table_is_refused_in_a_sentence_whose_command_makes_it_anew(tmp_path: Path) -> None:
    async def fill() -> None:
        async with running(tmp_path / "store") as harness:
            assert (await (await harness.client()).send("Orders", queue_id=3)).code == 0

    run(fill())
    config = tmp_path / "store" / "config"
    (config / "topics.json").write_text("[]")
    (config / "topics.json.bak").unlink(missing_ok=True)
    sizes = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=5000", "maxIndexNum=20000")
    options = ["-p0", "--store", str(tmp_path / "store"), *(f"--set={size}" for size in sizes)]
    said = sentence(cometmq("broker", *options))
    assert said.startswith(f"{config / 'topics.json'} cannot be read (the body is no JSON object)")
    command = said.partition("cometmq store ")[2].split()
    assert command == ["rebuild-table", str(tmp_path / "store"), "topics.json"]
    mended = cometmq("store", *command)
    assert mended.returncode == 0, mended.stderr
    assert mended.stdout.startswith("topics.json has 1 entries now:\n  Orders\n")
    assert (config / "topics.json.damaged").read_text() == "[]"

    async def look() -> None:
        async with running(tmp_path / "store") as harness:
            assert harness.broker.state.topics.table["Orders"].write_queue_nums == 4
            assert len(await (await harness.client()).drain("Orders", queue_id=3)) == 1

    run(look())


def test_what_the_system_refuses_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commitlog" / ("0" * 20)).mkdir(parents=True)
    (tmp_path / "checkpoint").mkdir()
    assert command_line(["store", "verify", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == f"cometmq: [Errno 21] Is a directory: '{tmp_path / 'checkpoint'}'\n"


def test_a_slave_is_rebuilt_by_a_command_that_deletes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"

    async def fill() -> None:
        async with running(store) as harness:
            assert (await (await harness.client()).send("Orders")).code == 0
            assert command_line(["store", "rebuild-slave", str(store)]) == 1  # it is in use

    run(fill())
    assert "is in use by another broker" in capsys.readouterr().err
    before = {each.name: each.read_bytes() for each in (store / "commitlog").iterdir()}
    assert command_line(["store", "rebuild-slave", str(store)]) == 0
    (kept,) = store.glob("replaced-*")
    assert str(kept) in capsys.readouterr().out
    assert {each.name: each.read_bytes() for each in (kept / "commitlog").iterdir()} == before

    async def look() -> None:
        async with running(store, broker_role="SLAVE", broker_id=1) as harness:
            assert harness.broker.store.max_phy_offset == 0

    run(look())
