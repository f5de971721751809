"""How a role is asked to log."""

from __future__ import annotations

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.load import from_text, load
from cometmq.settings.logs import LogSettings


def loaded(text: str) -> LogSettings:
    return load((LogSettings,), from_text(text, "f")).of(LogSettings)


def test_levels_are_by_package_whole_or_short() -> None:
    found = loaded("logLevels=net:debug, store.log:INFO,cometmq.broker:ERROR,").levels
    assert found == {
        "cometmq.net": "DEBUG",
        "cometmq.store.log": "INFO",
        "cometmq.broker": "ERROR",
    }
    assert LogSettings().levels == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logFormat=xml", "plain or json"),
        ("logLevels=net", "pairs as in"),
        ("logLevels=net:LOUD", "levels are DEBUG, INFO"),
        ("logLevels=Net:DEBUG", "pairs as in"),
        ("logFilesMax=0", "at least 1"),
        ("logFileBytesMax=10", "at least 1024"),
    ],
)
def test_a_bad_value_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        loaded(text)
