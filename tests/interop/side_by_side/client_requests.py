"""What clients ask a broker about messages: sends, pulls, offsets."""

from __future__ import annotations

from cometmq.wire.java_hash import java_hash
from interop.side_by_side.exchanges import Talk, linked
from interop.side_by_side.fields import (
    GROUP,
    TOPIC,
    beat,
    group_queue,
    items,
    make_topic,
    pull,
    queue,
    send_v1,
    send_v2,
    subscription,
    without,
)

LONG_NAME = "Long" * 32
WAIT_S = 0.5
"""Apache makes consume queue entries a little after it has answered a send."""


def prepare(talk: Talk) -> None:
    """The topics that the other sections use."""
    talk.ask("prepare/topic", 17, make_topic())
    talk.ask("prepare/read only", 17, make_topic("ReadOnly", 2, 4))
    talk.ask("prepare/write only", 17, make_topic("WriteOnly", 2, 2))
    talk.ask("prepare/empty", 17, make_topic("Empty", 1))
    talk.ask("prepare/delayed", 17, make_topic("Delayed"))
    talk.ask("prepare/big", 17, make_topic("Big"))
    talk.ask("prepare/fewer reads", 17, make_topic("FewerReads", writeQueueNums="4", queues=2))
    talk.ask("prepare/v2 name", 17, make_topic(LONG_NAME[:127], 1))
    talk.ask("prepare/group", 34, {}, beat("preparer", subscription(), group=GROUP), on="preparer")
    talk.ask("prepare/unregister", 35, {"clientID": "preparer", "consumerGroup": GROUP})
    talk.hang_up("preparer")
    talk.pause(WAIT_S)


def send(talk: Talk) -> None:
    """10, 310, 320: single, batch, one-way, refused."""
    keyed = {"KEYS": "k1 k2", "UNIQ_KEY": "0A" * 16, "WAIT": "true", "TAGS": "TagA"}
    talk.ask("send/v2", 310, send_v2(properties=keyed), b"one")
    talk.ask("send/v1", 10, send_v1(properties={"TAGS": "TagB"}), b"two")
    talk.ask("send/without properties", 310, without(send_v2(), "i"), b"three")
    talk.ask("send/v1 without properties", 10, without(send_v1(), "properties"), b"four")
    talk.ask("send/empty body", 310, send_v2("ReadOnly"), b"")
    talk.ask("send/user flag and compressed", 310, send_v2(flag="9", sysFlag="769"), b"not zlib")
    talk.ask("send/queue -1", 310, send_v2("Empty", -1), b"any")
    talk.ask("send/queue too high", 310, send_v2(queue=99), b"x")
    talk.ask("send/queue only to write", 310, send_v2("FewerReads", 3), b"x")
    talk.ask("send/new topic", 310, send_v2("MadeBySend"), b"x")
    talk.ask(
        "send/new topic with more queues than the default",
        10,
        send_v1("More", defaultTopicQueueNums="99"),
        b"x",
    )
    talk.ask("send/new topic, 0 queues", 10, send_v1("Zero", defaultTopicQueueNums="0"), b"x")
    talk.ask("send/new topic, queue 7", 310, send_v2("MadeBySend7", 7), b"x")
    talk.ask(
        "send/new topic, default topic unknown", 310, send_v2("Never", defaultTopic="Nope"), b"x"
    )
    talk.ask(
        "send/new topic, default topic without inherit",
        310,
        send_v2("Never2", defaultTopic=TOPIC),
        b"x",
    )
    talk.ask("send/bad topic name", 310, send_v2("bad name!"), b"x")
    talk.ask("send/blank topic name", 310, send_v2(""), b"x")
    talk.ask("send/topic name of 128", 310, send_v2(LONG_NAME), b"x")
    talk.ask("send/topic name of 127", 310, send_v2(LONG_NAME[:127]), b"x")
    talk.ask("send/topic not to be sent to", 310, send_v2("SCHEDULE_TOPIC_XXXX"), b"x")
    talk.ask("send/half topic", 310, send_v2("RMQ_SYS_TRANS_HALF_TOPIC"), b"x")
    talk.ask("send/system topic TBW102", 310, send_v2("TBW102"), b"x")
    talk.ask("send/read only topic", 310, send_v2("ReadOnly"), b"x")
    talk.ask("send/body too large", 310, send_v2("Big"), b"x" * (4 * 1024 * 1024 + 1), kept=False)
    talk.ask(
        "send/body as large as may be", 310, send_v2("Big"), b"x" * (4 * 1024 * 1024), kept=False
    )
    talk.ask(
        "send/properties too long",
        310,
        send_v2("Big", properties={"p": "x" * 32765}),
        b"x",
        kept=False,
    )
    talk.ask(
        "send/properties that leave no room",
        310,
        send_v2("Big", properties={"p": "x" * 32750}),
        b"x",
        kept=False,
    )
    talk.ask(
        "send/long properties", 310, send_v2("Big", properties={"p": "x" * 32600}), b"x", kept=False
    )
    talk.ask("send/delayed", 310, send_v2("Delayed", properties={"DELAY": "1"}), b"later")
    talk.ask(
        "send/delay level 99", 310, send_v2("Delayed", properties={"DELAY": "99"}), b"much later"
    )
    talk.ask("send/delay level -1", 310, send_v2("Delayed", properties={"DELAY": "-1"}), b"now")
    talk.ask(
        "send/delay level no number", 310, send_v2("Delayed", properties={"DELAY": "soon"}), b"x"
    )
    talk.ask("send/oddities", 17, make_topic("Oddity"))
    talk.ask("send/no fields", 310, {}, b"x")
    talk.ask("send/v1 no fields", 10, {}, b"x")
    for key in (
        "producerGroup",
        "topic",
        "defaultTopic",
        "queueId",
        "sysFlag",
        "bornTimestamp",
        "flag",
    ):
        talk.ask(f"send/v1 without {key}", 10, without(send_v1("Oddity"), key), b"x")
    for key in "abcdefgh":
        talk.ask(f"send/v2 without {key}", 310, without(send_v2("Oddity"), key), b"x")
    for key in "jkmn":
        talk.ask(f"send/v2 without optional {key}", 310, without(send_v2("Oddity"), key), b"x")
    talk.ask("send/queue no number", 310, send_v2("Oddity", queueId="many"), b"x")
    talk.ask("send/batch", 320, send_v2(batch="true"), items(b"b1", b"b2", b"b3", TAGS="t"))
    talk.ask("send/batch of none", 320, send_v2("Oddity", batch="true"), b"")
    talk.ask("send/batch, torn", 320, send_v2("Oddity", batch="true"), items(b"b1", b"b2")[:-3])
    talk.ask(
        "send/batch to a retry topic", 320, send_v2(f"%RETRY%{GROUP}", batch="true"), items(b"b")
    )
    talk.ask("send/batch marked in 310", 310, send_v2(batch="true"), items(b"b4", b"b5"))
    talk.ask("send/batch to a new topic", 320, send_v2("MadeByBatch", batch="true"), items(b"b"))
    talk.oneway("send/one-way", 310, send_v2(queue=1), b"told")
    talk.oneway("send/one-way refused", 310, send_v2(queue=99), b"told")
    talk.pause(WAIT_S)
    talk.ask("send/after the one-way", 30, queue(queue_id=1))
    talk.ask(
        "send/retry topic of a group", 310, send_v2(f"%RETRY%{GROUP}", reconsumeTimes="1"), b"x"
    )
    talk.ask(
        "send/retry topic, too often", 310, send_v2(f"%RETRY%{GROUP}", reconsumeTimes="17"), b"x"
    )
    talk.ask(
        "send/retry topic, own maximum",
        310,
        send_v2(f"%RETRY%{GROUP}", reconsumeTimes="3", maxReconsumeTimes="2"),
        b"x",
    )
    talk.ask("send/retry topic of no group", 310, send_v2("%RETRY%no-such-group"), b"x")
    talk.ask("send/dead letter topic", 310, send_v2(f"%DLQ%{GROUP}"), b"x")
    talk.pause(WAIT_S)
    talk.ask("send/retry queue afterwards", 30, queue(f"%RETRY%{GROUP}"))
    talk.ask("send/dead letters afterwards", 30, queue(f"%DLQ%{GROUP}"))
    talk.ask("send/what was stored", 11, pull())


def offsets(talk: Talk) -> None:
    """14, 15, 29 to 32."""
    for name, code in (("max", 30), ("min", 31), ("earliest time", 32)):
        talk.ask(f"offsets/{name}", code, queue())
        talk.ask(f"offsets/{name} of an empty queue", code, queue("ReadOnly", 1))
        talk.ask(f"offsets/{name} of a queue out of range", code, queue(queue_id=77))
        talk.ask(f"offsets/{name} of queue -1", code, queue(queue_id=-1))
        talk.ask(f"offsets/{name} of an unknown topic", code, queue("Nowhere"))
        talk.ask(f"offsets/{name} without topic", code, without(queue(), "topic"))
        talk.ask(f"offsets/{name} without queue", code, without(queue(), "queueId"))
        talk.ask(f"offsets/{name} without fields", code)
        talk.ask(f"offsets/{name} of queue x", code, queue(queueId="x"))
    talk.ask("offsets/max, committed", 30, queue(committed="false"))
    stored = talk.exchanges["send/what was stored"]
    for boundary in ("LOWER", "UPPER", "lower"):
        for name, when in (("0", "0"), ("far ahead", "4000000000000"), ("negative", "-5")):
            ext = queue(timestamp=when, boundaryType=boundary)
            talk.ask(f"offsets/by time {name} {boundary}", 29, ext)
        ext = queue(timestamp=linked(stored, "store_ms", "0"), boundaryType=boundary)
        talk.ask(f"offsets/by time of the first {boundary}", 29, ext)
    talk.ask("offsets/by time, no boundary", 29, queue(timestamp="0"))
    talk.ask("offsets/by time, odd boundary", 29, queue(timestamp="0", boundaryType="MIDDLE"))
    talk.ask("offsets/by time, no time", 29, queue())
    talk.ask("offsets/by time, unknown topic", 29, queue("Nowhere", timestamp="0"))
    talk.ask("offsets/by time, queue out of range", 29, queue(queue_id=77, timestamp="0"))
    talk.ask("offsets/by time, empty queue", 29, queue("ReadOnly", timestamp="0"))
    talk.ask(
        "offsets/by time, empty queue, far ahead", 29, queue("ReadOnly", timestamp="4000000000000")
    )

    talk.ask("offsets/of a new group", 14, group_queue())
    talk.ask("offsets/of a new group, empty queue", 14, group_queue(1, "ReadOnly"))
    talk.ask("offsets/of a new group, not zero", 14, group_queue(setZeroIfNotFound="false"))
    talk.ask("offsets/of a new group, zero", 14, group_queue(setZeroIfNotFound="true"))
    talk.ask("offsets/of an unknown group", 14, group_queue(group="unheard-of"))
    talk.ask("offsets/of an unknown topic", 14, group_queue(topic="Nowhere"))
    talk.ask("offsets/of a queue out of range", 14, group_queue(77))
    talk.ask("offsets/query without group", 14, without(group_queue(), "consumerGroup"))
    talk.ask("offsets/query without topic", 14, without(group_queue(), "topic"))
    talk.ask("offsets/query without queue", 14, without(group_queue(), "queueId"))
    talk.ask("offsets/commit", 15, group_queue(commitOffset="2"))
    talk.ask("offsets/committed", 14, group_queue())
    talk.ask("offsets/commit backwards", 15, group_queue(commitOffset="1"))
    talk.ask("offsets/committed backwards", 14, group_queue())
    talk.ask("offsets/commit beyond the end", 15, group_queue(commitOffset="99999"))
    talk.ask("offsets/committed beyond the end", 14, group_queue())
    talk.ask("offsets/commit negative", 15, group_queue(commitOffset="-1"))
    talk.ask("offsets/committed negative", 14, group_queue())
    talk.ask(
        "offsets/commit of an unknown group", 15, group_queue(group="unheard-of", commitOffset="1")
    )
    talk.ask(
        "offsets/commit of an unknown topic", 15, group_queue(topic="Nowhere", commitOffset="1")
    )
    talk.ask("offsets/commit of a queue out of range", 15, group_queue(77, commitOffset="1"))
    talk.ask("offsets/commit of queue -1", 15, group_queue(-1, commitOffset="1"))
    talk.ask("offsets/commit without offset", 15, group_queue())
    talk.oneway("offsets/commit one-way", 15, group_queue(2, commitOffset="5"))
    talk.pause(0.1)
    talk.ask("offsets/committed one-way", 14, group_queue(2))
    talk.ask("offsets/reset for later", 15, group_queue(commitOffset="0"))


def pulling(talk: Talk) -> None:
    """11 and 361, with and without a heartbeat."""
    talk.ask("pull/without heartbeat", 11, pull(sysFlag="2", subVersion="0"))
    talk.ask("pull/found", 11, pull())
    talk.ask("pull/one message", 11, pull(maxMsgNums="1"))
    talk.ask("pull/0 messages", 11, pull(maxMsgNums="0"))
    talk.ask("pull/-1 messages", 11, pull(maxMsgNums="-1"))
    talk.ask("pull/few bytes", 11, pull(maxMsgBytes="1"))
    talk.ask("pull/by tag", 11, pull(subscription="TagA"))
    talk.ask("pull/by tags", 11, pull(subscription="TagA || TagB"))
    talk.ask("pull/by a tag that is not there", 11, pull(subscription="Nobody"))
    talk.ask("pull/by blank", 11, pull(subscription=""))
    talk.ask("pull/by bars", 11, pull(subscription="||"))
    talk.ask("pull/by SQL while it is off", 11, pull(subscription="a > 1", expressionType="SQL92"))
    talk.ask("pull/by SQL that is none", 11, pull(subscription="a >", expressionType="SQL92"))
    talk.ask("pull/by an unknown kind", 11, pull(expressionType="XPATH"))
    talk.ask("pull/flag but no subscription", 11, without(pull(), "subscription"))
    talk.ask("pull/no expression type", 11, without(pull(), "expressionType"))
    talk.ask("pull/at the end", 11, pull(offset=10**6))
    end = talk.ask("pull/max", 30, queue())
    at_end = {**pull(), "queueOffset": linked(end, "ext", "offset")}
    talk.ask("pull/at max", 11, at_end)
    talk.ask(
        "pull/at max, suspended", 11, {**at_end, "sysFlag": "6", "suspendTimeoutMillis": "300"}
    )
    talk.ask("pull/negative offset", 11, pull(offset=-1))
    talk.ask("pull/empty queue at 0", 11, pull("ReadOnly", 1))
    talk.ask("pull/empty queue at 5", 11, pull("ReadOnly", 1, 5))
    talk.ask("pull/queue out of range", 11, pull(queue=77))
    talk.ask("pull/queue -1", 11, pull(queue=-1))
    talk.ask("pull/queue only to write", 11, pull("FewerReads", 3))
    talk.ask("pull/unknown topic", 11, pull("Nowhere"))
    talk.ask("pull/write only topic", 11, pull("WriteOnly"))
    talk.ask("pull/delayed messages", 11, pull("SCHEDULE_TOPIC_XXXX", 0))
    talk.ask("pull/unknown group", 11, pull(consumerGroup="made-by-pull"))
    talk.ask("pull/bad group name", 11, pull(consumerGroup="bad group!"))
    talk.ask(
        "pull/lite", 361, pull(sysFlag="22", maxMsgNums="10", maxMsgBytes="2147483647", ReqT="0")
    )
    for key in (
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
    ):
        talk.ask(f"pull/without {key}", 11, without(pull(), key))
    talk.ask("pull/no fields", 11)
    talk.ask("pull/offset no number", 11, pull(queueOffset="x"))
    talk.ask("pull/commits", 11, pull(sysFlag="5", commitOffset="3"))
    talk.ask("pull/committed", 14, group_queue())
    talk.ask("pull/commits nothing without the flag", 11, pull(sysFlag="4", commitOffset="4"))
    talk.ask("pull/committed still", 14, group_queue())
    codes = [java_hash("TagA")]
    body = beat("puller", subscription(expression="TagA", version=7, codeSet=codes))
    talk.ask("pull/heartbeat", 34, {}, body, on="puller")
    plain = pull(sysFlag="2", subscription="", subVersion="7")
    talk.ask("pull/with heartbeat", 11, without(plain, "subscription"), on="puller")
    talk.ask("pull/newer subscription", 11, {**plain, "subVersion": "8"}, on="puller")
    talk.ask("pull/older subscription", 11, {**plain, "subVersion": "6"}, on="puller")
    talk.ask("pull/topic not subscribed", 11, {**plain, "topic": "Empty"}, on="puller")
    talk.ask(
        "pull/other topic by expression",
        11,
        {**plain, "topic": "Empty", "sysFlag": "4", "subscription": "*", "maxMsgNums": "1"},
        on="puller",
    )
    wait = pull("Wake", sysFlag="6", suspendTimeoutMillis="10000")
    talk.ask("pull/topic to wait on", 17, make_topic("Wake", 1))
    talk.ask("pull/first", 310, send_v2("Wake"), b"first")
    talk.pause(WAIT_S)
    held = talk.post("pull/parked", 11, {**wait, "queueOffset": "1"}, on="parked")
    talk.pause(0.3)
    talk.ask("pull/waking", 310, send_v2("Wake"), b"second")
    talk.collect(held)
    tagged = {**wait, "queueOffset": "2", "subscription": "TagC", "suspendTimeoutMillis": "700"}
    held = talk.post("pull/parked by tag", 11, tagged, on="parked")
    talk.pause(0.3)
    talk.ask("pull/not waking", 310, send_v2("Wake", properties={"TAGS": "TagD"}), b"third")
    talk.collect(held)
    talk.ask(
        "pull/long poll that ends", 11, {**wait, "queueOffset": "3", "suspendTimeoutMillis": "500"}
    )
    talk.ask("pull/unregister", 35, {"clientID": "puller", "consumerGroup": GROUP}, on="puller")


SECTIONS = (prepare, send, offsets, pulling)
