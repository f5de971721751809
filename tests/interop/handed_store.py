"""What is sent into a store that changes hands, and how it is found there again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq import Message, Producer
from cometmq.cli.main import run
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.base import Header
from cometmq.wire.records import log_record as stored
from interop.reading import read

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TOPIC, COUNT = "Hands", 200


def send(namesrv: str, name: str) -> None:
    with Producer("hands", namesrv=namesrv) as producer:
        for n in range(COUNT):
            producer.send(Message(TOPIC, f"{name} {n}".encode(), tags="t", keys=f"{name}-{n}"))


def bodies(*names: str) -> list[bytes]:
    return sorted(f"{name} {n}".encode() for name in names for n in range(COUNT))


def found(namesrv: str, group: str, count: int) -> list[bytes]:
    return sorted(message.body for message in read(namesrv, TOPIC, group, count))


def by_key(broker: str, key: str, **more: str) -> list[bytes]:
    """What a broker answers to QUERY_MESSAGE, whatever wrote the index it answers from."""
    asked = {"topic": TOPIC, "key": key, "maxNum": "64", "beginTimestamp": "0"}
    asked["endTimestamp"] = str((1 << 63) - 1)
    with BlockingChannel(broker) as channel:
        answer = channel.call(RequestCode.QUERY_MESSAGE, Ext(asked | more))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), answer
    return [record.body for record in stored.iterate(answer.body)]


class Ext(Header):
    """Extra fields as they are."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields

    def encode(self) -> dict[str, str]:
        return self.fields


def looked_up(broker: str, *names: str) -> None:
    """Each message of these senders is found by its key."""
    for name in names:
        for n in range(0, COUNT, 17):
            assert by_key(broker, f"{name}-{n}") == [f"{name} {n}".encode()]
    assert by_key(broker, "nobody-1") == []


def looked_up_by_tag(broker: str) -> None:
    """Messages are found by their tag, which brokers before 5.x do not do."""
    assert len(by_key(broker, "t", indexType="T")) == 64


def found_whole(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`store verify` reads every record, queue and index entry, times and links included."""
    code = run(["store", "verify", str(store)])
    said = capsys.readouterr().out
    assert code == 0, said
    assert f"  {TOPIC}\n" in said
