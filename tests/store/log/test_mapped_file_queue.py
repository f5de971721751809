"""The files of a queue of files, as they are found in its directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import NotAStore
from cometmq.runtime.system_clock_and_files import SystemFiles
from cometmq.store.log.mapped_file_queue import MappedFileQueue, OpenFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("content", [b"", b"x"])
def test_a_file_of_another_name_is_refused_even_when_it_is_empty(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(100))
    (tmp_path / "1").write_bytes(content)
    found = MappedFileQueue(SystemFiles(), tmp_path, 100, OpenFiles(4), mapped=False)
    with pytest.raises(NotAStore, match=re.escape(f"{tmp_path}/1 is no store file")):
        found.load()


def test_a_directory_among_the_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(100))
    (tmp_path / "lost+found").mkdir()
    found = MappedFileQueue(SystemFiles(), tmp_path, 100, OpenFiles(4), mapped=False)
    found.load()
    assert found.bases == [0]
