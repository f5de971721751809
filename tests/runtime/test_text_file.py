"""A settings file: after a crash at any moment it has its old text or its new one."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from random import Random

import pytest

from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.runtime.text_file import TextFile
from cometmq.settings.properties import edited
from cometmq.testing.sim_files import SimFiles

CONF = Path("/conf/broker.conf")


def test_what_was_saved_is_read_and_what_was_before_is_kept_beside_it(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "broker.conf", SystemFiles())
    assert file.read() == ""
    file.save("first = ä\n")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broker.conf"]
    file.save("second\n")
    assert file.read() == "second\n"
    assert (tmp_path / "broker.conf.bak").read_text(encoding="utf-8") == "first = ä\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broker.conf", "broker.conf.bak"]


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes there")
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_with_secrets_stays_its_owners_alone_and_so_does_the_former_one(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("first\n")
    path.chmod(mode)
    before = os.umask(0o022)
    try:
        TextFile(path, SystemFiles()).save("second\n")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in sorted(tmp_path.iterdir())]
    assert modes == [mode, mode]
    assert (tmp_path / "broker.conf.bak").read_text() == "first\n"


def test_bytes_that_are_no_utf_8_stay_as_they_are_when_another_line_changes(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_bytes(b"# caf\xe9\nbrokerPermission=6\n")
    file = TextFile(tmp_path / "broker.conf", SystemFiles())
    file.save(edited(file.read(), {"brokerPermission": "4"}, {}))
    assert (tmp_path / "broker.conf").read_bytes() == b"# caf\xe9\nbrokerPermission=4\n"


@pytest.mark.parametrize("seed", range(20))
def test_a_text_that_was_saved_survives_a_power_cut(seed: int) -> None:
    disk = SimFiles(Random(seed))
    disk.make_dir(CONF.parent)
    file = TextFile(CONF, disk)
    for text in ("first", "second", "third"):
        file.save(text)
        disk.power_cut()
        assert file.read() == text


@pytest.mark.parametrize("missing", ["write", "rename", "sync_dir"])
@pytest.mark.parametrize("seed", range(10))
def test_a_save_that_fails_leaves_the_old_text_or_the_new_one(
    seed: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimFiles(Random(seed))
    disk.make_dir(CONF.parent)
    file = TextFile(CONF, disk)
    file.save("old")
    real = getattr(disk, missing)

    def fail(*arguments: object) -> None:
        if arguments[0] != CONF.with_name("broker.conf.bak"):
            raise OSError(5, "broken")
        real(*arguments)

    monkeypatch.setattr(disk, missing, fail)
    with pytest.raises(OSError, match="broken"):
        file.save("new")
    disk.power_cut()
    assert file.read() in ("old", "new")
