"""What a comparison with brokers says before it reads anything."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import CometError
from cometmq.spark.tables.archive_verification import verify_archive
from cometmq.spark.tables.manifest_log import ManifestLog
from cometmq.spark.tables.table_files import LocalTableFiles


def test_a_table_whose_first_run_ended_before_a_commit_is_no_archive(tmp_path: Path) -> None:
    session: Any = object()
    with pytest.raises(CometError, match="there is no archive in file:"):
        verify_archive(session, tmp_path, namesrv="127.0.0.1:1")
    ManifestLog(LocalTableFiles(tmp_path)).begin({}, {})
    with pytest.raises(CometError, match="there is no archive in file:"):
        verify_archive(session, tmp_path, namesrv="127.0.0.1:1")
