"""Tables made anew: nothing that was there before is lost, and only stores are touched."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import NotAStore, StoreCorrupt
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.lost_tables import TableRebuilder, refuse_lost_tables
from cometmq.testing.memory_store import STORE_ROOT
from cometmq.testing.sim_files import SimFiles

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = STORE_ROOT / "config"


def test_a_table_that_is_made_anew_twice_keeps_what_was_there_at_first() -> None:
    disk = SimFiles(Random(1))
    disk.make_dir(CONFIG)
    disk.make_dir(STORE_ROOT / "commitlog")
    contents = [b"the damaged table", b"what somebody tried", b"and tried again"]
    for content in contents:
        disk.write(CONFIG / "topics.json", content)
        TableRebuilder(disk, STORE_ROOT).rebuild("topics.json", 1)
    kept = [f"topics.json.damaged{number}" for number in ("", ".2", ".3")]
    assert disk.names(CONFIG) == ["topics.json", *kept]
    assert [disk.read(CONFIG / name) for name in kept] == contents


@pytest.mark.parametrize(
    "missing", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"]
)
def test_a_table_is_missed_only_where_others_name_what_users_made(missing: str) -> None:
    def disk_with(topic: str, group: str) -> SimFiles:
        disk = SimFiles(Random(1))
        disk.make_dir(CONFIG)
        tables = {
            "topics.json": {"topicConfigTable": {}},
            "subscriptionGroup.json": {"subscriptionGroupTable": {group: {"groupName": group}}},
            "consumerOffset.json": {"offsetTable": {f"{topic}@{group}": {"0": 1}}},
        }
        for name in tables.keys() - {missing}:
            disk.write(CONFIG / name, json.dumps(tables[name]).encode())
        return disk

    refuse_lost_tables(disk_with("SCHEDULE_TOPIC_XXXX", "TOOLS_CONSUMER"), STORE_ROOT)
    with pytest.raises(StoreCorrupt, match=f"{missing} and its .bak are missing"):
        refuse_lost_tables(disk_with("T", "G"), STORE_ROOT)


def test_no_table_is_made_in_a_directory_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore, match=r"holds 'letter.txt' and no commitlog"):
        TableRebuilder(SystemFiles(), tmp_path).rebuild("topics.json", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
