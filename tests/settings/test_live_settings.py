"""The settings in force: swapped whole, given to the subscribers of the kind that changed."""

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings


def changed(live: LiveSettings, text: str) -> dict[str, str]:
    change = live.prepare(text)
    live.apply(change)
    return change.values


def test_only_subscribers_of_the_kind_that_changed_hear_of_it_in_their_order() -> None:
    live = LiveSettings(BrokerSettings(), StoreSettings(), NetSettings())
    heard: list[object] = []
    live.subscribe(BrokerSettings, lambda new: heard.append(("first", new.broker_permission)))
    live.subscribe(
        BrokerSettings,
        lambda new: heard.append(("second", new.broker_permission)),
        lambda new: heard.append(("third", new.broker_permission)),
    )
    live.subscribe(StoreSettings, lambda _new: heard.append("store"))
    assert changed(live, "brokerPermission=4\n") == {"brokerPermission": "4"}
    assert heard == [("first", 4), ("second", 4), ("third", 4)]
    assert live.of(BrokerSettings).broker_permission == 4
    assert live.of(StoreSettings) == StoreSettings()


def test_a_change_to_the_same_value_is_none() -> None:
    live = LiveSettings(BrokerSettings(), StoreSettings())
    live.subscribe(BrokerSettings, lambda _new: pytest.fail("nothing changed"))
    assert changed(live, "brokerPermission=6\n") == {}


def test_a_refused_change_leaves_all_as_it_was() -> None:
    live = LiveSettings(BrokerSettings(), StoreSettings())
    text = live.text()
    with pytest.raises(SettingsError):
        live.prepare("brokerPermission=4\nfileReservedTime=x\n")
    assert live.text() == text


def test_the_text_has_all_settings_sorted_by_key() -> None:
    lines = LiveSettings(BrokerSettings(), StoreSettings()).text().splitlines()
    assert lines == sorted(lines)
    assert "fileReservedTime=72" in lines
    assert "brokerPermission=6" in lines


def test_a_change_leaves_other_numbers_exactly_as_they_are() -> None:
    live = LiveSettings(BrokerSettings(), NetSettings(idle_s=1_234_567.25))
    changed(live, "brokerPermission=4\n")
    assert live.of(NetSettings).idle_s == 1_234_567.25
    assert "serverChannelMaxIdleTimeSeconds=120\n" in LiveSettings(NetSettings()).text()
