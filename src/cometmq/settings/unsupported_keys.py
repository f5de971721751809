"""What Apache RocketMQ's settings can ask for and CometMQ does not have, by key.

Each of these keys changes what is safe, how a store lies on disk, who has access or what is
delivered. So another value than Apache's default is refused, at a start and while a role runs: to
go on without would lose or show what it protects. Whoever adds such a feature removes its line here
and names the key in a settings class, or in `settings/java_keys.py`. Data, and the one sentence.
"""

from __future__ import annotations

from typing import NamedTuple


class UnsupportedKey(NamedTuple):
    """Apache's default, `|` between several, and what any other value asks for."""

    default: str
    asks_for: str


UNSUPPORTED = {
    # Access
    "migrateAuthFromV1Enabled": UnsupportedKey(
        "false", "accounts of ACL 1.0 turned into users (aclEnable reads them as they are)"
    ),
    "socksProxyConfig": UnsupportedKey("{}", "connections through a proxy"),
    "rejectPullConsumerEnable": UnsupportedKey(
        "false", "the refusal of pull consumers that send no heartbeat"
    ),
    "disableConsumeIfConsumerReadSlowly": UnsupportedKey(
        "false", "the exclusion of groups that are far behind"
    ),
    "startAcceptSendRequestTimeStamp": UnsupportedKey("0", "the refusal of sends until a time"),
    "configBlackList": UnsupportedKey(
        "configBlackList;brokerConfigPath|configBlackList;configStorePath;kvConfigPath",
        "other keys that nobody may change from outside",
    ),
    "clusterTest": UnsupportedKey("false", "routes taken from another environment"),
    # Layout of the store
    "storeType": UnsupportedKey("default", "queues in RocksDB"),
    "rocksdbCQDoubleWriteEnable": UnsupportedKey("false", "queues in RocksDB"),
    "indexRocksDBEnable": UnsupportedKey("false", "an index in RocksDB"),
    "transRocksDBEnable": UnsupportedKey("false", "transactions in RocksDB"),
    "timerRocksDBEnable": UnsupportedKey("false", "timers in RocksDB"),
    "configManagerVersion": UnsupportedKey("v1", "topics, groups and offsets in RocksDB"),
    "useSingleRocksDBForAllConfigs": UnsupportedKey(
        "false", "topics, groups and offsets in RocksDB"
    ),
    "enableDLegerCommitLog": UnsupportedKey("false", "a log kept by DLedger"),
    "readOnlyCommitLogStorePaths": UnsupportedKey("", "a log in several directories"),
    "messageStorePlugIn": UnsupportedKey("", "another store, such as tiered storage"),
    "enableConsumeQueueExt": UnsupportedKey("false", "queues with an extension file"),
    "enableLmq": UnsupportedKey("false", "light message queues"),
    "enableMultiDispatch": UnsupportedKey("false", "light message queues"),
    "timerInterceptDelayLevel": UnsupportedKey("false", "delay levels kept by the timing wheel"),
    "replicasPerDiskPartition": UnsupportedKey("1", "several stores that share one disk"),
    "isBrokerContainer": UnsupportedKey("false", "several brokers in one process"),
    "isInBrokerContainer": UnsupportedKey("false", "several brokers in one process"),
    # Replication: when a message is safe, and who may serve it
    "allAckInSyncStateSet": UnsupportedKey("false", "a controller that elects masters"),
    "enableAutoInSyncReplicas": UnsupportedKey("false", "fewer copies where slaves are missing"),
    "duplicationEnable": UnsupportedKey("false", "a master that is fed like a slave"),
    "asyncLearner": UnsupportedKey("false", "a controller that elects masters"),
    "enableSlaveActingMaster": UnsupportedKey("false", "a slave that stands in for its master"),
    "enableRemoteEscape": UnsupportedKey("false", "a slave that stands in for its master"),
    "lockInStrictMode": UnsupportedKey("false", "queue locks agreed upon by replicas"),
    "enableControllerMode": UnsupportedKey("false", "a controller that elects masters"),
    "enableControllerInNamesrv": UnsupportedKey("false", "a controller that elects masters"),
    # What is delivered, where from and to whom
    "defaultMessageRequestMode": UnsupportedKey("PULL", "groups that take messages by POP"),
    "useStaticSubscription": UnsupportedKey("false", "subscriptions kept in a group's settings"),
    "forceVerifyPropCRC": UnsupportedKey("false", "the refusal of records without a checksum"),
    "fetchNamesrvAddrByAddressServer": UnsupportedKey("false", "name servers found over HTTP"),
    "fetchNameSrvAddrByDnsLookup": UnsupportedKey("false", "name servers found by DNS"),
}


def refusal(key: str, text: str) -> str | None:
    """Why this value of a key is refused; None for Apache's default, an empty text included."""
    default, asks_for = UNSUPPORTED[key]
    given = text.strip().lower()
    if not given or given in default.lower().split("|"):
        return None
    advice = f"set it to {default.split('|')[0]}" if default else "remove it"
    asked = f"{key} is {text.strip()!r}, which asks for {asks_for}"
    return f"{asked}; CometMQ does not have that: {advice}, or keep Apache's broker"
