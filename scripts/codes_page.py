# ruff: noqa: INP001
"""Write docs/operate/admin-codes.md: which request codes broker and name server answer.

What is answered is read from a broker and a name server that are made for it; the notes are here.
A code that nobody answers must have a reason; one that is answered may have a note.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cometmq.broker.app import Broker
from cometmq.namesrv.app import NameServer
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.store import StoreSettings
from cometmq.wire.codes import RequestCode

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operate" / "admin-codes.md"

TO_CLIENTS = (39, 40, 220, 221, 307, 309, 326)
"""What a broker asks its clients."""
TO_BROKERS = (905,)
"""What a name server sends to its brokers."""

NOTES = {
    12: "`queryMsgByKey`, `queryMsgByUniqueKey`",
    17: "`updateTopic`, `updateTopicPerm`; `cometmq topic create` and `alter`",
    18: "`updateTopicList`",
    21: "`exportMetadata`; in pages where those are asked for",
    25: "`updateBrokerConfig`; [settings](settings.md) marked live",
    26: "`getBrokerConfig`, `exportConfigs`",
    28: "`brokerStatus`, `clusterList`, `exportMetrics`; see below",
    29: "`printMsg`, `consumeMessage`",
    30: "`printMsg`, `checkMsgSendRT`",
    31: "`printMsg`",
    33: "`queryMsgById`",
    43: "a slave's copy, dashboards",
    45: "a slave's copy",
    100: "`updateKvConfig`, `updateOrderConf`",
    101: "`updateOrderConf -m get`",
    102: "`deleteKvConfig`",
    103: "a broker's registration, plain or compressed",
    104: "a broker's farewell",
    105: "`topicRoute`",
    106: "`clusterList`, `topicClusterList`",
    200: "`updateSubGroup`; attributes of a group are refused",
    201: "`exportMetadata`, `brokerConsumeStats`; in pages where those are asked for",
    202: "`topicStatus`",
    203: "`consumerConnection`, `consumerStatus`",
    204: "`producerConnection`",
    205: "`wipeWritePerm`",
    206: "`topicList`",
    207: "`deleteSubGroup`",
    208: "`consumerProgress`",
    215: "`deleteTopic`",
    216: "`deleteTopic`",
    217: "queues of a topic on registered brokers, until they register it otherwise",
    219: "order configuration",
    222: "`resetOffsetByTime`, `skipAccumulatedMessage`; by time and by offset. With "
    "`useServerSideResetOffset=false` connected consumers are asked (220)",
    223: "offsets that consumers hold; asks them (221)",
    224: "`topicList -c`",
    225: "`updateSubGroupList`",
    300: "`statsAll`, `topicList -c`",
    303: "dashboards",
    304: "`topicList`",
    305: "`topicList`",
    306: "`cleanExpiredCQ`; deletes files that are old enough, keeps queues and their offsets",
    307: "`consumerStatus`; asks the consumer",
    308: "least offsets of a topic's groups; unlike Apache's it changes nothing",
    309: "`queryMsgById -g -d`; asks the consumer",
    311: "topics of units",
    312: "topics that units subscribe",
    313: "topics that units subscribe and that are of no unit",
    314: "`cloneGroupOffset`",
    315: "`statsAll`; see below",
    316: "`cleanUnusedTopic`",
    317: "`brokerConsumeStats`",
    318: "`updateNamesrvConfig`; [settings](settings.md) marked live",
    319: "`getNamesrvConfig`",
    321: "`queryCq`",
    322: "a broker asks whether its topics are known as they are",
    327: "`addWritePerm`",
    328: "`producer`",
    329: "`deleteExpiredCommitLog`; at any hour, but not before `fileReservedTime`",
    343: "`statsAll`, dashboards",
    345: "what a connected group subscribes",
    351: "`updateTopicPerm`",
    352: "`getConsumerConfig`; makes the group where first use does",
    353: "keeps a group from a topic, or lets it again",
    901: "who shares a broker name",
    904: "a sign of life between registrations",
    905: "to brokers of one name, with `notifyMinBrokerIdChanged`",
    907: "`haStatus`, `brokers replication`",
    1007: "`getBrokerEpoch`; answers 1 before the first promotion, as without a controller",
    1008: "`brokers promote`; brokers tell each other who the master is",
    3001: "`createUser`, `copyUser`; `cometmq users create`; [access control](access.md)",
    3002: "`updateUser`, `copyUser`; `cometmq users update`",
    3003: "`deleteUser`; `cometmq users delete`",
    3004: "`getUser`, `copyUser`; passwords are for super users alone",
    3005: "`listUser`, `copyUser`; `cometmq users list`",
    3006: "`createAcl`, `copyAcl`; `cometmq acls allow` and `deny`",
    3007: "`updateAcl`, `copyAcl`",
    3008: "`deleteAcl`; `cometmq acls delete`",
    3009: "`getAcl`, `copyAcl`",
    3010: "`listAcl`, `copyAcl`; `cometmq acls list`",
}
POP = "POP consumption comes later"
LITE = "lite topics come with POP, if at all"
TIMER = "slaves and tools do not ask for timers yet"
HA = "replication comes later"
CONTROLLER = "there is no controller; a code of controllers"
COLD = "there is no throttle to be set: threads wait for cold reads, and nobody else does"
ROCKS = "there is no RocksDB here"
UNUSED = "declared by Apache and answered by nobody there either"
WHY_NOT = {
    **dict.fromkeys((13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302), UNUSED),
    **dict.fromkeys((60, 370, 5001), TIMER),
    **dict.fromkeys((400, 401, 402, *range(200050, 200057), 200151), POP),
    **dict.fromkeys(range(200070, 200080), LITE),
    **dict.fromkeys((906, 908), HA),
    **dict.fromkeys((*range(1001, 1007), *range(1009, 1014)), CONTROLLER),
    **dict.fromkeys(range(2001, 2005), COLD),
    **dict.fromkeys((354, 355), ROCKS),
    **dict.fromkeys((902, 903), "for containers of several brokers, which there are none of"),
    513: "static topics are not supported",
}

INTRO = """\
# Request codes

Made by `scripts/codes_page.py` from what a broker and a name server answer; a test keeps it fresh.

What `mqadmin` and RocketMQ's dashboard do is requests of these codes. A code that is not supported
is answered with 3 (REQUEST_CODE_NOT_SUPPORTED), and the connection stays. The commands are those
of release 5.5.0, run against Apache's broker and ours. Of the dashboard's calls all are supported
but those about users and access control.

## Supported

| Code | Name | Broker | Name server | Used by, and what to know |
|---|---|---|---|---|
"""
MIDDLE = """\

`asks` says that the role sends the request itself.

**What the broker is doing (28).** Figures of thread pools and timers are 0: there are none.
Rates are of 10 s, a minute and ten minutes, sampled every 10 s. `getFoundTps` and `getMissTps`
count readings of a queue, also those of a pull that then waits; `getTransferredTps` counts
messages. `putMessageDistributeTime`, `putLatency99` and `putLatency999` (ms, at most a fifth off)
are of the last full minute, and during the first minute of its elapsed part; Apache's broker has
none in its first minute. Puts are counted by message and timed by loop iteration: all that arrive
together count from the first of them until they may be answered, with SYNC_FLUSH the flush
included. `putMessageFailedTimes` are messages that the store refused or lost.
`dispatchBehindBytes` is how much of the log the key index has not read yet.

**Figures (315)** are of the last minute (samples every 10 s), hour (10 min) and day (1 h). Kept are
`TOPIC_PUT_NUMS` and `TOPIC_PUT_SIZE` by topic; `GROUP_GET_NUMS`, `GROUP_GET_SIZE`,
`SNDBCK_PUT_NUMS` and `DLQ_PUT_NUMS` by `topic@group`; `QUEUE_GET_NUMS` and `QUEUE_GET_SIZE` by
`topic@queue@group`; `GROUP_GET_LATENCY` by `queue@topic@group`; `BROKER_PUT_NUMS`,
`BROKER_GET_NUMS` and both with `_WITHOUT_SYSTEM_TOPIC` by cluster; `QUEUE_PUT_NUMS` and
`QUEUE_PUT_SIZE` by `SCHEDULE_TOPIC_XXXX@queue` (as on Apache's broker, which counts them for no
other topic), and what is delivered from there as read by the group `SCHEDULE_CONSUMER`;
`CHANNEL_ACTIVITY` by `CONNECT` and `CLOSE`; `CONSUMER_REGISTER_TIME` and `PRODUCER_REGISTER_TIME`
by cluster, in ms. Other names, and keys nothing was counted for, are answered with 1, as by Apache.
Not kept are `TOPIC_PUT_LATENCY` (by queue and topic: every send would pay for a figure that no
command shows), the commercial and account counters, and those of POP (`GROUP_ACK_NUMS`,
`GROUP_CK_NUMS`, `BROKER_ACK_NUMS`, `BROKER_CK_NUMS`).

## Not supported

| Code | Name | Why |
|---|---|---|
"""


def answered() -> tuple[set[int], set[int]]:
    """Return what a broker and what a name server answers."""
    with tempfile.TemporaryDirectory() as place:
        store = StoreSettings(commit_log_file_bytes=1024 * 1024)
        broker = Broker.open(BrokerSettings(store_path_root_dir=place), store)
        broker.store.abandon()
    return set(broker.codes), set(NameServer.open().codes)


def page() -> str:
    """Return the whole page."""
    broker, names = answered()
    supported, rest = "", ""
    for code in sorted(RequestCode):
        is_asked = code in TO_CLIENTS or code in TO_BROKERS
        if code in broker or code in names or is_asked:
            role_b = "yes" if code in broker else ""
            role_b = ", ".join(filter(None, (role_b, "asks clients" if code in TO_CLIENTS else "")))
            role_n = "yes" if code in names else "asks brokers" if code in TO_BROKERS else ""
            note = NOTES.get(code, "clients")
            supported += f"| {code:d} | `{code.name}` | {role_b} | {role_n} | {note} |\n"
        else:
            rest += f"| {code:d} | `{code.name}` | {WHY_NOT[code]} |\n"
    return INTRO + supported + MIDDLE + rest


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
