"""Every setting of Apache's is honoured, has no effect for a reason, or is refused."""

from __future__ import annotations

import dataclasses

import pytest

from cometmq.errors import SettingsError
from cometmq.settings.access import AccessSettings
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.java_keys import HONOURED, JAVA_KEYS, NO_EFFECT
from cometmq.settings.keys import key_of
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.load import from_options, from_text, load
from cometmq.settings.monitoring import MonitoringSettings
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.settings.net import NetSettings
from cometmq.settings.store import StoreSettings
from cometmq.settings.tls import TlsSettings
from cometmq.settings.unsupported_keys import UNSUPPORTED

BROKER = (
    BrokerSettings,
    StoreSettings,
    NetSettings,
    AccessSettings,
    MonitoringSettings,
    TlsSettings,
)
NAMESRV = (NamesrvSettings, NetSettings, AccessSettings, MonitoringSettings, TlsSettings)

STOCK = """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
storePathRootDir=/root/broker-a/store
storePathCommitLog=/root/broker-a/store/commitlog
haListenPort=10912
sendMessageThreadPoolNums=16
aclEnable=false
enableControllerMode=false
timerWheelEnable=true
storeType=default
inSyncReplicas=1
messageStorePlugIn=
"""


def other_than(default: str) -> str:
    """A value that is not the default: as a flag, a number or a text."""
    flags = {"false": "true", "true": "false"}
    return flags.get(default, "7" if default.isdecimal() else f"{default}other")


def test_every_key_is_sorted_once() -> None:
    places = (HONOURED, NO_EFFECT.keys(), UNSUPPORTED.keys())
    assert sum(map(len, places)) == len(JAVA_KEYS)
    assert len(JAVA_KEYS) == 546
    assert all(key.isidentifier() for key in JAVA_KEYS)


def test_what_is_called_honoured_is_a_setting_and_nothing_else_is() -> None:
    kinds = {*BROKER, *NAMESRV}
    ours = {key_of(field) for kind in kinds for field in dataclasses.fields(kind)}
    assert ours >= HONOURED
    assert ours.isdisjoint(JAVA_KEYS - HONOURED)


@pytest.mark.parametrize("kinds", [BROKER, NAMESRV])
@pytest.mark.parametrize("key", UNSUPPORTED)
def test_each_refused_key_refuses_to_start_and_to_change(key: str, kinds: tuple[type, ...]) -> None:
    default, asks_for = UNSUPPORTED[key]
    for good in (*default.split("|"), "", default.split("|")[0].upper()):
        assert load(kinds, from_text(f"{key}={good}", "f")).warnings == ()
    with pytest.raises(SettingsError) as caught:
        load(kinds, from_text(f"# head\n{key}={other_than(default)}", "b.conf"))
    sentence = str(caught.value)
    assert sentence.startswith(f"b.conf:2: {key} is {other_than(default)!r}, which asks for ")
    assert asks_for in sentence
    with pytest.raises(SettingsError, match=f"{key}"):
        LiveSettings(*(kind() for kind in kinds)).prepare(f"{key}={other_than(default)}")


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(SettingsError) as caught:
        load(BROKER, from_options({"enableLmq": "true"}))
    assert str(caught.value) == (
        "command line: enableLmq is 'true', which asks for light message queues; CometMQ does not "
        "have that: set it to false, or keep Apache's broker"
    )
    with pytest.raises(SettingsError, match="remove it, or keep Apache's broker"):
        load(BROKER, from_options({"readOnlyCommitLogStorePaths": "/old"}))


def test_each_key_without_effect_is_a_warning_with_its_reason() -> None:
    for key, reason in NO_EFFECT.items():
        (warning,) = load(BROKER, from_text(f"{key}=1", "f")).warnings
        assert warning == f"f:1: {key} has no effect here: {reason}"


def test_a_file_as_users_of_apache_have_it_loads_with_a_warning_at_most() -> None:
    warnings = load(BROKER, from_text(STOCK, "broker.conf")).warnings
    keys = [warning.split()[1] for warning in warnings]
    assert keys == ["sendMessageThreadPoolNums"]
