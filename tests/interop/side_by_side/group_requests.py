"""What clients tell and ask a broker besides messages: groups, locks, send-backs, transactions."""

from __future__ import annotations

from interop.side_by_side.exchanges import Talk, linked
from interop.side_by_side.fields import (
    BROKER,
    CLUSTER,
    GROUP,
    PRODUCER,
    TOPIC,
    beat,
    items,
    pull,
    queue,
    queues,
    send_v1,
    send_v2,
    subscription,
    without,
)

WAIT_S = 0.5
"""Apache makes consume queue entries a little after it has answered a send."""


def heartbeats(talk: Talk) -> None:
    """34, 35, 38 and what they change; 46."""
    talk.ask("beat/list of nobody", 38, {"consumerGroup": "beat-group"})
    talk.ask("beat/list without group", 38)
    one = beat("c1@beat", subscription(), group="beat-group", producers=(PRODUCER,))
    talk.ask("beat/first", 34, {}, one, on="beat-1")
    talk.ask("beat/again", 34, {}, one, on="beat-1")
    talk.ask(
        "beat/second client",
        34,
        {},
        beat("c2@beat", subscription(), group="beat-group"),
        on="beat-2",
    )
    talk.pause(0.3)
    talk.pushed("beat/notified", 40, on="beat-1")
    talk.ask("beat/list of two", 38, {"consumerGroup": "beat-group"})
    talk.ask(
        "beat/full with a fingerprint", 34, {}, {**one, "heartbeatFingerprint": 42}, on="beat-1"
    )
    light = {**one, "heartbeatFingerprint": 42, "withoutSub": True}
    light["consumerDataSet"] = [{**one["consumerDataSet"][0], "subscriptionDataSet": []}]
    talk.ask("beat/light", 34, {}, light, on="beat-1")
    talk.ask(
        "beat/light, other fingerprint", 34, {}, {**light, "heartbeatFingerprint": 43}, on="beat-1"
    )
    changed = beat("c1@beat", subscription(version=9), subscription("Empty"), group="beat-group")
    talk.ask("beat/changed subscriptions", 34, {}, changed, on="beat-1")
    talk.ask("beat/no groups", 34, {}, beat("c3@beat"), on="beat-3")
    talk.ask(
        "beat/producer only", 34, {}, beat("c4@beat", producers=("beat-producers",)), on="beat-4"
    )
    talk.ask(
        "beat/broadcasting",
        34,
        {},
        beat("c5@beat", subscription(), group="cast", model="BROADCASTING"),
        on="beat-5",
    )
    talk.ask("beat/null sets", 34, {}, {"clientID": "c6@beat"}, on="beat-6")
    talk.ask("beat/empty body", 34, {}, b"", on="beat-7")
    talk.ask("beat/no JSON", 34, {}, b"{{{{", on="beat-8")
    talk.ask(
        "beat/bad group name",
        34,
        {},
        beat("c7@beat", subscription(), group="bad group!"),
        on="beat-9",
    )
    talk.ask(
        "beat/blank group name", 34, {}, beat("c8@beat", subscription(), group=""), on="beat-9"
    )
    talk.ask("beat/consumers", 203, {"consumerGroup": "beat-group"})
    talk.ask("beat/consumers of nobody", 203, {"consumerGroup": "nobody"})
    talk.ask("beat/consumers without group", 203)
    talk.ask("beat/producers", 204, {"producerGroup": "beat-producers"})
    talk.ask("beat/producers of nobody", 204, {"producerGroup": "nobody"})
    talk.ask("beat/all producers", 328)
    talk.ask("beat/topics of a consumer", 343, {"group": "beat-group"})
    talk.ask("beat/topics of nobody", 343, {"group": "nobody"})
    talk.ask("beat/subscription", 345, {"group": "beat-group", "topic": TOPIC})
    talk.ask("beat/subscription to nothing", 345, {"group": "beat-group", "topic": "Nowhere"})
    talk.ask("beat/subscription of nobody", 345, {"group": "nobody", "topic": TOPIC})
    talk.ask("beat/who consumes", 300, {"topic": TOPIC})
    talk.ask("beat/who consumes nothing", 300, {"topic": "Nowhere"})
    talk.ask("beat/retry topic made", 351, {"topic": "%RETRY%beat-group", "lo": "true"})
    talk.ask(
        "beat/unregister second",
        35,
        {"clientID": "c2@beat", "consumerGroup": "beat-group"},
        on="beat-2",
    )
    talk.ask("beat/list of one", 38, {"consumerGroup": "beat-group"})
    talk.ask(
        "beat/unregister from elsewhere", 35, {"clientID": "c1@beat", "consumerGroup": "beat-group"}
    )
    talk.ask("beat/list after that", 38, {"consumerGroup": "beat-group"})
    talk.ask("beat/unregister unknown", 35, {"clientID": "c9@beat", "consumerGroup": "nobody"})
    talk.ask(
        "beat/unregister producer",
        35,
        {"clientID": "c4@beat", "producerGroup": "beat-producers"},
        on="beat-4",
    )
    talk.ask("beat/unregister nothing", 35)
    talk.hang_up("beat-1")
    talk.pause(WAIT_S)
    talk.ask("beat/list after the last left", 38, {"consumerGroup": "beat-group"})
    fields = {"clientId": "c@46", "group": GROUP, "namespace": ""}
    talk.ask("check/tag", 46, {}, {**fields, "subscriptionData": subscription(expression="TagA")})
    sql = subscription(expression="a > 1", expressionType="SQL92")
    talk.ask("check/SQL while it is off", 46, {}, {**fields, "subscriptionData": sql})
    talk.ask("check/no subscription", 46, {}, fields)
    talk.ask("check/empty", 46)


def locks(talk: Talk) -> None:
    """41 and 42."""
    talk.ask("lock/first", 41, {}, queues("one", 0, 1))
    talk.ask("lock/again", 41, {}, queues("one", 0, 1, 2))
    talk.ask("lock/other client", 41, {}, queues("two", 0, 1, 2, 3))
    talk.ask("lock/unlock of another's", 42, {}, queues("two", 0))
    talk.ask("lock/still locked", 41, {}, queues("two", 0))
    talk.ask("lock/unlock", 42, {}, queues("one", 0, 1))
    talk.ask("lock/after unlock", 41, {}, queues("two", 0, 1))
    talk.ask("lock/other group", 41, {}, queues("two", 0, group="lock-group-2"))
    talk.ask("lock/unknown topic and queue", 41, {}, queues("one", 99, topic="Nowhere", group="g3"))
    talk.ask("lock/nothing", 41, {}, queues("one", group="g4"))
    talk.ask("lock/empty body", 41)
    talk.ask("lock/unlock, empty body", 42)
    talk.ask("lock/no group", 41, {}, without(queues("one", 0), "consumerGroup"))
    for client in ("one", "two"):
        talk.ask(f"lock/clean {client}", 42, {}, queues(client, 0, 1, 2, 3))
    talk.ask("lock/of the other group, clean", 42, {}, queues("two", 0, group="lock-group-2"))
    talk.ask("lock/retry topic of a locked group", 41, {}, queues("one", 0, group="locked-group"))
    body = beat("locker", subscription(), group="locked-group")
    talk.ask("lock/heartbeat", 34, {}, body, on="locker")
    talk.ask("lock/send to its retry topic", 310, send_v2("%RETRY%locked-group"), b"x")
    talk.pause(WAIT_S)
    talk.ask("lock/its dead letters", 30, queue("%DLQ%locked-group"))


def send_back(talk: Talk) -> None:
    """36: retry, dead letter, refusals."""
    sent = talk.ask("back/sent", 310, send_v2("Empty", properties={"UNIQ_KEY": "0B" * 16}), b"try")
    talk.pause(WAIT_S)
    fields = {
        "offset": linked(sent, "phy", "msgId"),
        "group": GROUP,
        "delayLevel": "0",
        "originMsgId": "0B" * 16,
        "originTopic": "Empty",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "bname": BROKER,
    }
    talk.ask("back/later", 36, {**fields, "delayLevel": "1"})
    talk.ask("back/default level", 36, fields)
    talk.ask("back/level too high", 36, {**fields, "delayLevel": "99"})
    talk.ask("back/dead", 36, {**fields, "delayLevel": "-1"})
    talk.ask("back/dead, no more tries", 36, {**fields, "maxReconsumeTimes": "0"})
    talk.ask("back/without maximum", 36, without(fields, "maxReconsumeTimes"))
    talk.ask("back/unknown group", 36, {**fields, "group": "unheard-of"})
    talk.ask("back/offset beyond", 36, {**fields, "offset": "99999999"})
    talk.ask("back/offset in the middle", 36, {**fields, "offset": "7"})
    for key in fields:
        talk.ask(f"back/without {key}", 36, without(fields, key))
    talk.ask("back/no fields", 36)
    talk.pause(1.6, least=1.6)
    talk.ask("back/retry queue", 11, pull(f"%RETRY%{GROUP}", 0, 1, maxMsgNums="1"))
    talk.ask("back/dead letter", 11, pull(f"%DLQ%{GROUP}", 0, 2))
    talk.ask("back/dead letter topic", 351, {"topic": f"%DLQ%{GROUP}", "lo": "true"})


def lookups(talk: Talk) -> None:
    """33 and 12."""
    sent = talk.ask(
        "view/sent",
        310,
        send_v2("Empty", properties={"KEYS": "look up", "UNIQ_KEY": "0C" * 16, "TAGS": "T"}),
        b"find me",
    )
    talk.ask("view/another", 310, send_v2("Empty", properties={"KEYS": "look"}), b"find me too")
    talk.pause(1.0)
    at = linked(sent, "phy", "msgId")
    talk.ask("view/by offset", 33, {"topic": "Empty", "offset": at})
    talk.ask("view/by offset, other topic", 33, {"topic": TOPIC, "offset": at})
    talk.ask("view/by offset, no topic", 33, {"offset": at})
    talk.ask("view/beyond the end", 33, {"topic": TOPIC, "offset": "99999999"})
    talk.ask("view/in the middle", 33, {"topic": TOPIC, "offset": "7"})
    talk.ask("view/negative", 33, {"topic": TOPIC, "offset": "-1"})
    talk.ask("view/no offset", 33, {"topic": TOPIC})
    ends = {"beginTimestamp": "0", "endTimestamp": "4000000000000", "maxNum": "32"}
    by = {"topic": "Empty", "key": "look", **ends}
    talk.ask("query/by key", 12, by)
    talk.ask("query/by key, at most one", 12, {**by, "maxNum": "1"})
    talk.ask("query/by second key", 12, {**by, "key": "up"})
    talk.ask("query/by unique key", 12, {**by, "key": "0C" * 16, "_UNIQUE_KEY_QUERY": "true"})
    talk.ask("query/by unique key as key", 12, {**by, "key": "0C" * 16})
    talk.ask("query/by key as unique key", 12, {**by, "_UNIQUE_KEY_QUERY": "true"})
    talk.ask("query/by unknown key", 12, {**by, "key": "nobody"})
    talk.ask("query/unknown topic", 12, {**by, "topic": "Nowhere"})
    talk.ask("query/too early", 12, {**by, "endTimestamp": "1000000000000"})
    talk.ask("query/too late", 12, {**by, "beginTimestamp": "3900000000000"})
    talk.ask("query/index type", 12, {**by, "indexType": "K"})
    talk.ask("query/by tag", 12, {**by, "key": "T", "indexType": "T"})
    for key in by:
        talk.ask(f"query/without {key}", 12, without(by, key))


def transactions(talk: Talk) -> None:
    """Half messages, 37, 39."""
    props = {"TRAN_MSG": "true", "PGROUP": "beside-tx", "UNIQ_KEY": "0D" * 16, "KEYS": "tx"}
    half = talk.ask("tx/half", 310, send_v2("Tx", properties=props, sysFlag="4"), b"half 1")
    other = talk.ask(
        "tx/another half",
        310,
        send_v2("Tx", properties={**props, "UNIQ_KEY": "0E" * 16}, sysFlag="4"),
        b"half 2",
    )
    talk.pause(WAIT_S)
    talk.ask("tx/nothing to read", 30, queue("Tx"))
    talk.ask("tx/half topic", 30, queue("RMQ_SYS_TRANS_HALF_TOPIC"))

    def end(source, decision: str, **more: str) -> dict[str, str]:
        fields = {
            "topic": "Tx",
            "producerGroup": "beside-tx",
            "tranStateTableOffset": linked(source, "ext", "queueOffset"),
            "commitLogOffset": linked(source, "phy", "msgId"),
            "commitOrRollback": decision,
            "fromTransactionCheck": "false",
            "msgId": "0D" * 16,
            "transactionId": "0D" * 16,
            "bname": BROKER,
        }
        return {**fields, **more}

    talk.ask("tx/other group", 37, end(half, "8", producerGroup="stranger"))
    talk.ask("tx/other queue offset", 37, end(half, "8", tranStateTableOffset="77"))
    talk.ask("tx/other log offset", 37, end(half, "8", commitLogOffset="99999999"))
    talk.ask("tx/odd decision", 37, end(half, "5"))
    for key in ("producerGroup", "commitLogOffset", "tranStateTableOffset", "commitOrRollback"):
        talk.ask(f"tx/without {key}", 37, without(end(half, "8"), key))
    talk.ask("tx/commit", 37, end(half, "8"))
    talk.ask("tx/rollback", 37, end(other, "12"))
    talk.pause(1.0)
    talk.ask("tx/committed", 11, pull("Tx"))
    talk.ask("tx/commit again", 37, end(half, "8"))
    talk.ask(
        "tx/batch of halves",
        320,
        send_v2("Tx", properties=props, sysFlag="4", batch="true"),
        items(b"h"),
    )
    talk.ask(
        "tx/half with delay",
        310,
        send_v2("Tx", properties={**props, "DELAY": "1"}, sysFlag="4"),
        b"half 3",
    )
    talk.oneway("tx/unknown", 37, end(half, "0"))


def replies(talk: Talk) -> None:
    """324 and 325, with and without somebody who waits."""
    topic = f"{CLUSTER}_REPLY_TOPIC"
    props = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000"}
    lost = {**props, "REPLY_TO_CLIENT": "nobody@1"}
    talk.ask("reply/nobody waits", 325, send_v2(topic, properties=lost), b"answer")
    talk.ask("reply/nobody waits, v1", 324, send_v1(topic, properties=lost), b"answer")
    talk.ask("reply/no client named", 325, send_v2(topic, properties=props), b"answer")
    talk.ask("reply/requester", 34, {}, beat("asker@1", producers=("askers",)), on="asker")
    found = {**props, "REPLY_TO_CLIENT": "asker@1"}
    exchange = talk.post("reply/somebody waits", 325, send_v2(topic, properties=found), b"answer")
    talk.pushed("reply/pushed", 326, on="asker", answer=b"")
    talk.collect(exchange)
    talk.ask("reply/unknown topic", 325, send_v2("Nowhere_REPLY_TOPIC", properties=lost), b"answer")
    talk.ask("reply/no fields", 325)


SECTIONS = (heartbeats, locks, send_back, lookups, transactions, replies)
