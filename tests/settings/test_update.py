"""Settings changed while a role runs, and the file they are written to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.properties import edited, parse
from cometmq.settings.renamed_keys import RENAMED
from cometmq.settings.store import StoreSettings
from cometmq.settings.update import ForbiddenKeyError, table_of, update

SETTINGS = (BrokerSettings(), StoreSettings(), NetSettings())


def test_live_settings_change_all_at_once() -> None:
    found = update(SETTINGS, "brokerPermission=4\nfileReservedTime=24\nmaxMessageSize=1000\n")
    broker, store, net = found.settings
    assert (broker.broker_permission, store.file_reserved_hours) == (4, 24)
    assert store.max_message_bytes == 1000
    assert net == SETTINGS[2]
    assert found.values == {
        "brokerPermission": "4",
        "fileReservedTime": "24",
        "maxMessageSize": "1000",
    }
    assert SETTINGS[0].broker_permission == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("brokerPermision=4", "the request: unknown setting brokerPermision; did you mean"),
        ("brokerPermission=9", "brokerPermission is 9; it must be 2 or 4 or 6"),
        ("fileReservedTime=long", "it must be a whole number"),
        ("brokerName=x", "brokerName is read at the start only"),
        ("brokerPermission=4\nlistenPort=1", "listenPort is read at the start only"),
    ],
)
def test_a_wrong_change_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        update(SETTINGS, text)


@pytest.mark.parametrize("key", ["brokerConfigPath", "configBlackList", "rocketmqHome"])
def test_some_keys_cannot_be_changed_while_a_role_runs(key: str) -> None:
    with pytest.raises(ForbiddenKeyError, match=key):
        update(SETTINGS, f"brokerPermission=4\n{key}=/tmp/x")


def test_all_settings_as_they_are_change_nothing() -> None:
    text = "".join(f"{key}={value}\n" for key, value in table_of(SETTINGS).items())
    found = update(SETTINGS, text)
    assert found.settings == SETTINGS
    assert found.values == {}


def test_a_key_of_rocketmq_without_effect_is_a_warning() -> None:
    found = update(SETTINGS, "sendMessageThreadPoolNums=8\nbrokerPermission=4")
    assert list(found.values) == ["brokerPermission"]
    assert "sendMessageThreadPoolNums" in found.warnings[0]


def test_an_edited_file_keeps_what_it_said_otherwise() -> None:
    text = "# mine\na = 1\r\nb: 2 \\\n  and more\n\n! old\na=3\nc 4"
    assert edited(text, {"a": "9", "d": "new"}, {}) == (
        "# mine\na=9\nb: 2 \\\n  and more\n\n! old\na=9\nc 4\nd=new\n"
    )
    assert edited("", {"a": "1"}, {}) == "a=1\n"
    assert edited("b=1 \\\n 2\nc=3", {"b": "x"}, {}) == "b=x\nc=3\n"


def test_an_edited_file_has_the_present_name_of_what_was_changed() -> None:
    text = "old=1\nother=2\n"
    assert edited(text, {"new": "3"}, {"old": "new"}) == "new=3\nother=2\n"
    assert edited(text, {"other": "3"}, {"old": "new"}) == "old=1\nother=3\n"


def test_a_setting_is_changed_under_its_old_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RENAMED, "formerKey", "heldPullsMax")
    found = update(SETTINGS, "formerKey=7\n")
    assert found.values == {"heldPullsMax": "7"}
    assert found.warnings == (
        "the request: formerKey is called heldPullsMax now; release 0.2 drops the old name",
    )


_keys = st.text("abc", min_size=1, max_size=2)
_values = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20).map(
    str.rstrip
)


@given(st.dictionaries(_keys, _values), st.dictionaries(_keys, _values))
def test_what_was_edited_is_read_back(before: dict[str, str], values: dict[str, str]) -> None:
    text = edited(edited("# first\n", before, {}), values, {})
    assert {entry.key: entry.value for entry in parse(text)} == {**before, **values}
