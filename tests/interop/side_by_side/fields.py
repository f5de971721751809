"""The extra fields and bodies of the requests, with the values a Java client would use."""

from __future__ import annotations

from cometmq.wire.records import message_batch
from cometmq.wire.records.message_batch import BatchItem

GROUP, TOPIC, PRODUCER = "beside-group", "Beside", "beside-producer"
CLUSTER, BROKER = "DefaultCluster", "broker-a"
BORN_MS = "1700000000000"
LETTERS = dict(
    zip(
        (
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "maxReconsumeTimes",
            "batch",
        ),
        "abcdefghijklm",
        strict=True,
    )
)


def without(fields: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key not in keys}


def text(properties: dict[str, str]) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in properties.items())


def send_v1(topic: str = TOPIC, queue: int = 0, properties: object = None, **more: str) -> dict:
    given = properties if isinstance(properties, dict) else {}
    fields = {
        "producerGroup": PRODUCER,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue),
        "sysFlag": "0",
        "bornTimestamp": BORN_MS,
        "flag": "0",
        "properties": text(given),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    return {**fields, **more}


def send_v2(topic: str = TOPIC, queue: int = 0, properties: object = None, **more: str) -> dict:
    fields = send_v1(topic, queue, properties, **more)
    return {**{LETTERS.get(key, key): value for key, value in fields.items()}, "n": BROKER}


def items(*bodies: bytes, **properties: str) -> bytes:
    raw = text(properties).encode()
    return message_batch.encode([BatchItem(0, body, raw) for body in bodies])


def pull(topic: str = TOPIC, queue: int = 0, offset: int = 0, **more: str) -> dict[str, str]:
    fields = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
        "bname": BROKER,
    }
    return {**fields, **more}


def queue(topic: str = TOPIC, queue_id: int = 0, **more: str) -> dict[str, str]:
    return {"topic": topic, "queueId": str(queue_id), "bname": BROKER, **more}


def group_queue(queue_id: int = 0, topic: str = TOPIC, group: str = GROUP, **more: str) -> dict:
    return {"consumerGroup": group, **queue(topic, queue_id, **more)}


def make_topic(name: str = TOPIC, queues: int = 4, perm: int = 6, **more: str) -> dict[str, str]:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    return {**fields, **more}


def subscription(topic: str = TOPIC, expression: str = "*", version: int = 1, **more: object):
    tags = [] if expression == "*" else expression.split("||")
    fields = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": expression,
        "subVersion": version,
        "tagsSet": tags,
        "topic": topic,
    }
    return {**fields, **more}


def beat(
    client: str, *subscriptions: dict, group: str = GROUP, producers: tuple = (), **more: object
) -> dict:
    """A heartbeat; `model` and `kind` change the consumer."""
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": more.pop("kind", "CONSUME_PASSIVELY"),
        "groupName": group,
        "messageModel": more.pop("model", "CLUSTERING"),
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
    }
    return {
        "clientID": client,
        "consumerDataSet": [consumer] if subscriptions else [],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": name} for name in producers],
        "withoutSub": False,
        **more,
    }


def queues(client: str, *ids: int, topic: str = TOPIC, group: str = GROUP) -> dict:
    """The body of a lock or an unlock."""
    return {
        "clientId": client,
        "consumerGroup": group,
        "mqSet": [{"brokerName": BROKER, "queueId": each, "topic": topic} for each in ids],
        "onlyThisBroker": False,
    }
