"""From files, variables and options to settings: what is used, warned of, and refused."""

from __future__ import annotations

import dataclasses

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.keys import key_of
from cometmq.settings.load import env_name_of, from_environment, from_options, from_text, load
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.renamed_keys import RENAMED
from cometmq.settings.store import StoreSettings

BROKER = (BrokerSettings, StoreSettings, NetSettings)
ALL = (*BROKER, NamesrvSettings)

STOCK = """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def test_apaches_stock_file_loads_without_a_warning() -> None:
    loaded = load(BROKER, from_text(STOCK, "broker.conf"))
    assert loaded.warnings == ()
    assert loaded.of(BrokerSettings).broker_name == "broker-a"
    assert loaded.of(StoreSettings).file_reserved_hours == 48


def test_later_layers_win_key_by_key() -> None:
    environment = {"COMETMQ_LISTEN_PORT": "2", "COMETMQ_BROKER_NAME": "env", "PATH": "/bin"}
    loaded = load(
        BROKER,
        from_text("listenPort=1\nbrokerName=file\nregionId=file", "f"),
        from_environment(environment, BROKER),
        from_options({"listenPort": 3, "bindAddress": None}),
    )
    found = loaded.of(BrokerSettings)
    assert (found.listen_port, found.broker_name, found.region_id) == (3, "env", "file")
    assert found.bind_address == "127.0.0.1"


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if `heldPullsMax` had been called `formerKey`."""
    monkeypatch.setitem(RENAMED, "formerKey", "heldPullsMax")


@pytest.mark.usefixtures("renamed")
def test_an_old_name_of_a_setting_counts_with_a_warning() -> None:
    environment = {"COMETMQ_FORMER_KEY": "6"}
    in_file = from_text("brokerId=0\nformerKey=5", "f.conf")
    found = load(BROKER, in_file)
    assert found.of(BrokerSettings).held_pulls_max == 5
    said = "formerKey is called heldPullsMax now; release 0.2 drops the old name"
    assert found.warnings == (f"f.conf:2: {said}",)
    found = load(BROKER, in_file, from_environment(environment, BROKER))
    assert found.of(BrokerSettings).held_pulls_max == 6
    assert found.warnings[1:] == (f"environment variable COMETMQ_FORMER_KEY: {said}",)
    with pytest.raises(SettingsError, match=r"f.conf:2: heldPullsMax is 0; it must be at least 1"):
        load(BROKER, from_text("\nformerKey=0", "f.conf"))


@pytest.mark.usefixtures("renamed")
def test_a_setting_under_both_its_names_is_an_error_unless_one_overrides_the_other() -> None:
    both = from_text("heldPullsMax=5\nformerKey=5", "f.conf")
    with pytest.raises(SettingsError) as refused:
        load(BROKER, both)
    assert str(refused.value) == (
        "f.conf:2: formerKey is the old name of heldPullsMax, which is given too (f.conf:1); "
        "remove it"
    )
    for old, new in (both[::-1], both):
        found = load(BROKER, [old], [new._replace(text="9")])
        assert found.of(BrokerSettings).held_pulls_max == 9


@pytest.mark.usefixtures("renamed")
def test_an_old_name_that_a_role_does_not_have_is_unknown_to_it() -> None:
    with pytest.raises(SettingsError, match="unknown setting formerKey"):
        load([NamesrvSettings], from_text("formerKey=5", "f.conf"))


def test_old_names_are_no_names_of_settings_and_present_ones_are() -> None:
    keys = {key_of(field) for kind in ALL for field in dataclasses.fields(kind)}
    assert set(RENAMED.values()) <= keys
    assert not RENAMED.keys() & keys


def test_a_key_of_a_broker_stands_in_one_class() -> None:
    keys = [key_of(field) for kind in BROKER for field in dataclasses.fields(kind)]
    assert sorted(keys) == sorted(set(keys))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("flushDiskTyp=x", "f.conf:3: unknown setting flushDiskTyp; did you mean flushDiskType?"),
        ("brokerid=1", "f.conf:3: unknown setting brokerid; did you mean brokerId?"),
        ("qqqqzzzz=1", "f.conf:3: unknown setting qqqqzzzz; no known setting is spelt like it"),
        (
            f"maxMessageSize={10**19}",
            f"f.conf:3: maxMessageSize is '{10**19}'; it must be a whole number",
        ),
        (
            "namesrvAddr=a:1;nohost",
            "f.conf:3: namesrvAddr is 'a:1;nohost'; "
            "it must be addresses as in host:9876;other:9876",
        ),
        (
            "brokerName=a b",
            "f.conf:3: brokerName is 'a b'; "
            "it must be a name of the characters % | - _ 0-9 A-Z a-z",
        ),
        (
            "serverChannelMaxIdleTimeSeconds=nan",
            "f.conf:3: serverChannelMaxIdleTimeSeconds is nan; it must be at least 0.05",
        ),
        ("brokerId=zero", "f.conf:3: brokerId is 'zero'; it must be a whole number"),
        ("brokerId=1", "f.conf:3: brokerId is 1; it must be 0 for the role ASYNC_MASTER"),
        ("listenPort=70000", "f.conf:3: listenPort is 70000; it must be between 0 and 65535"),
        ("longPollingEnable=si", "f.conf:3: longPollingEnable is 'si'; it must be true or false"),
        ("brokerRole=SLAVE", "settings: brokerId is 0; it must be at least 1 for a SLAVE"),
        (
            "brokerRole=BOTH",
            "f.conf:3: brokerRole is 'BOTH'; it must be ASYNC_MASTER or SYNC_MASTER or SLAVE",
        ),
        (
            "flushDiskType=NEVER",
            "f.conf:3: flushDiskType is 'NEVER'; it must be ASYNC_FLUSH or SYNC_FLUSH",
        ),
        (
            "serverChannelMaxIdleTimeSeconds=soon",
            "f.conf:3: serverChannelMaxIdleTimeSeconds is 'soon'; it must be a number",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(BROKER, from_text(f"# head\nregionId=r\n{line}\n", "f.conf"))
    assert str(caught.value) == sentence


def test_a_java_key_without_effect_is_one_warning_with_its_line() -> None:
    loaded = load(BROKER, from_text("regionId=r\nsendMessageThreadPoolNums=4", "b.conf"))
    (warning,) = loaded.warnings
    assert warning == (
        "b.conf:2: sendMessageThreadPoolNums has no effect here: "
        "one event loop does the work; no thread pool is sized"
    )


def test_a_key_of_the_other_role_is_a_warning() -> None:
    (warning,) = load([NamesrvSettings], from_text("brokerPermission=4", "n.conf")).warnings
    assert warning == (
        "n.conf:1: brokerPermission has no effect here: it is a setting of the other role"
    )


def test_a_licence_in_xml_is_a_warning_and_no_error() -> None:
    loaded = load(ALL, from_text("<!--\n  Licensed to you\n-->\nlistenPort=7\n", "n.conf"))
    assert loaded.of(NamesrvSettings).listen_port == 7
    assert any("<!--" in warning for warning in loaded.warnings)


def test_a_misspelt_variable_is_refused_and_one_of_another_program_is_ignored() -> None:
    assert from_environment({"COMETMQ_HOME": "/x", "LISTEN_PORT": "1"}, BROKER) == []
    assert from_environment({"COMETMQ_KV_CONFIG_PATH": "/x"}, BROKER) == []
    with pytest.raises(SettingsError, match="did you mean COMETMQ_LISTEN_PORT"):
        from_environment({"COMETMQ_LISTN_PORT": "1"}, BROKER)


def test_a_bad_variable_and_a_bad_option_are_named() -> None:
    with pytest.raises(SettingsError, match="environment variable COMETMQ_BROKER_ID: brokerId is"):
        load(BROKER, from_environment({"COMETMQ_BROKER_ID": "x"}, BROKER))
    with pytest.raises(SettingsError, match="command line: listenPort is 'x'"):
        load(BROKER, from_options({"listenPort": "x"}))


@pytest.mark.parametrize("kind", ALL)
def test_every_field_has_a_note_a_key_and_a_variable_of_its_own(kind: type) -> None:
    fields = dataclasses.fields(kind)
    assert all(field.metadata["note"] for field in fields)
    keys = [key_of(field) for field in fields]
    assert len(set(keys)) == len(keys)
    variables = {env_name_of(key).replace("_", "").lower() for key in keys}
    assert len(variables) == len(keys)
    for key in keys:
        (given,) = from_environment({env_name_of(key): "v"}, [kind])
        assert given.key == key


@pytest.mark.parametrize("kind", ALL)
def test_every_setting_can_be_given_as_text(kind: type) -> None:
    defaults = kind()
    lines = []
    for field in dataclasses.fields(kind):
        value = getattr(defaults, field.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"{key_of(field)}={text}")
    assert load([kind], from_text("\n".join(lines), "f")).of(kind) == defaults


def test_a_variable_for_a_key_that_is_refused_is_refused() -> None:
    given = from_environment({"COMETMQ_ENABLE_LMQ": "true"}, BROKER)
    with pytest.raises(SettingsError, match="environment variable COMETMQ_ENABLE_LMQ: enableLmq"):
        load(BROKER, given)
    given = from_environment({"COMETMQ_SEND_MESSAGE_THREAD_POOL_NUMS": "4"}, BROKER)
    assert "has no effect here" in load(BROKER, given).warnings[0]


def test_name_servers_are_split() -> None:
    settings = BrokerSettings(namesrv_addr="a:1; b:2;;")
    assert settings.namesrv_addrs == ("a:1", "b:2")


def test_a_value_that_is_no_utf_8_is_refused_and_a_comment_is_not() -> None:
    text = b"# caf\xe9\nregionId=caf\xe9\n".decode("utf-8", "surrogateescape")
    with pytest.raises(SettingsError) as caught:
        load(BROKER, from_text(text, "f.conf"))
    said = "f.conf:2: regionId is b'caf\\xe9', which is no UTF-8; write it in UTF-8"
    assert str(caught.value) == said
    assert load(BROKER, from_text(text.splitlines()[0], "f.conf")).warnings == ()


@pytest.mark.parametrize("key", ["mappedFileSizeCommitLog", "maxIndexNum", "maxHashSlotNum"])
def test_a_number_that_has_no_room_on_disk_is_refused(key: str) -> None:
    load(BROKER, from_options({key: 2**31 - 1}))
    with pytest.raises(SettingsError, match=f"{key} is 2147483648; it must be between"):
        load(BROKER, from_options({key: 2**31}))
