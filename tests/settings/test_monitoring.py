"""What monitoring is asked to show, and where."""

from __future__ import annotations

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.load import from_text, load
from cometmq.settings.monitoring import MonitoringSettings


def loaded(text: str) -> MonitoringSettings:
    return load((MonitoringSettings,), from_text(text, "f")).of(MonitoringSettings)


def test_nothing_is_listened_to_unless_asked() -> None:
    plain = MonitoringSettings()
    assert (plain.serves, plain.exports, plain.host) == (False, False, "127.0.0.1")
    assert loaded("healthEnable=true").serves
    assert not loaded("healthEnable=true").exports
    found = loaded("metricsExporterType=PROM\nmetricsPromExporterHost=0.0.0.0")
    assert (found.serves, found.exports, found.host) == (True, True, "0.0.0.0")


def test_labels_are_pairs() -> None:
    assert loaded("metricsLabel=zone:eu, rack:7,").labels == {"zone": "eu", "rack": "7"}
    assert MonitoringSettings().labels == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metricsExporterType=OTLP_GRPC", "DISABLE or PROM"),
        ("metricsLabel=zone", "pairs"),
        ("metricsLabel=a-b:c", "pairs"),
        ("metricsLabel=topic:T", "no metric of ours has"),
        ("metricsOtelCardinalityLimit=0", "at least 1"),
        ("metricsPromExporterPort=70000", "between 0 and 65535"),
    ],
)
def test_a_bad_value_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        loaded(text)
