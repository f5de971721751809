"""`cometmq store unreplicated`: what a cut took out of a log is listed, shown and sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.harness import SMALL_STORE
from broker.sockets import run, running
from cli.in_process import Commands
from cometmq.client.blocking.admin import Admin
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.recovery.store_directory import StoreDirectory
from cometmq.store.recovery.unreplicated import cut_log

if TYPE_CHECKING:
    from pathlib import Path


def test_a_cut_log_starts_without_what_was_cut_which_is_sent_again(
    tmp_path: Path, namesrv: str
) -> None:
    store, ends = tmp_path / "store", list[int]()

    async def fill() -> None:
        async with running(store) as harness:
            client = await harness.client()
            for number in range(60):
                await client.send("CutApart", b"%d" % number, queue_id=number % 3)
                ends.append(harness.broker.store.max_phy_offset)

    async def look() -> None:
        async with running(store) as harness:
            client = await harness.client()
            for queue_id in range(3):
                found = [each.body for each in await client.drain("CutApart", queue_id=queue_id)]
                assert found == [b"%d" % number for number in range(50) if number % 3 == queue_id]
            await client.send("CutApart", b"on", queue_id=0)
            assert len(await client.drain("CutApart", queue_id=0)) == 18

    run(fill())
    cut, size = ends[49], SMALL_STORE.commit_log_file_bytes
    for stamp in ("1", "2"):  # broken off and run again
        cut_log(SystemFiles(), StoreDirectory(SystemFiles(), store), size, cut, stamp)
    run(look())
    cometmq = Commands(namesrv)
    (row,) = cometmq.without_cluster("store", "unreplicated", "list", str(store), "--json").json
    name = f"{cut:020}-1"
    assert row == {"file": name, "records": 10, "resent": False}
    shown = cometmq.without_cluster("store", "unreplicated", "show", str(store), name)
    assert [line.split()[-1] for line in shown.out.splitlines()] == [
        repr(str(number)) for number in range(50, 60)
    ]
    broker = str(cometmq("brokers", "list", "--json").json[0]["broker"])
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic("CutApart", 3)
    resend = ("store", "unreplicated", "resend", str(store), name, "--broker", broker)
    assert "nothing was changed" in cometmq(*resend).err
    assert cometmq(*resend, "--yes").out == "10 sent to CutApart\n"
    again = cometmq(*resend, "--yes")
    assert (again.code, "was sent again already" in again.err) == (1, True)
    with Admin(namesrv=namesrv) as admin:
        offsets = admin.topic_stats("CutApart")
    assert sum(each.max_offset for each in offsets.values()) == 10
