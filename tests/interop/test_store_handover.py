"""One store directory under our broker and Apache's in turn: each reads what the other wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cometmq import Admin, Message, Producer
from cometmq.cli.main import run
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.base import Header
from cometmq.wire.records import log_record as stored
from interop.apache import ApacheCluster
from interop.handover import leave_apache, leave_ours
from interop.reading import read

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
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
    """Each message of these senders is found by its key, its id and its tag."""
    for name in names:
        for n in range(0, COUNT, 17):
            assert by_key(broker, f"{name}-{n}") == [f"{name} {n}".encode()]
    assert by_key(broker, "nobody-1") == []
    assert len(by_key(broker, "t", indexType="T")) == 64


def found_whole(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`store verify` reads every record, queue and index entry, times and links included."""
    code = run(["store", "verify", str(store)])
    said = capsys.readouterr().out
    assert code == 0, said
    assert f"  {TOPIC}\n" in said


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_store_goes_from_ours_to_apache_and_back(
    apache_jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    ours = LocalCluster(tmp_path / "store")
    ours.start()
    with Admin(namesrv=ours.namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
    send(ours.namesrv, "ours")
    leave_ours(ours, how)
    found_whole(tmp_path / "store", capsys)
    if how == "kill":  # as a log that is more than half full leaves its next file
        with (tmp_path / "store" / "commitlog" / f"{1 << 30:020d}").open("xb") as ahead:
            ahead.truncate(1 << 30)

    apache = ApacheCluster(apache_jars, tmp_path)
    try:
        assert found(apache.namesrv, "reader-1", COUNT) == bodies("ours")
        looked_up(apache.broker, "ours")
        send(apache.namesrv, "apache")
        looked_up(apache.broker, "ours", "apache")
    finally:
        leave_apache(apache, how)
    found_whole(tmp_path / "store", capsys)

    with LocalCluster(tmp_path / "store") as again:
        assert found(again.namesrv, "reader-2", 2 * COUNT) == bodies("apache", "ours")
        looked_up(again.broker, "ours", "apache")
        send(again.namesrv, "third")
        assert found(again.namesrv, "reader-3", 3 * COUNT) == bodies("apache", "ours", "third")
        looked_up(again.broker, "ours", "apache", "third")
    found_whole(tmp_path / "store", capsys)
