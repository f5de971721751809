"""Topics, groups, offsets, delays, long names and IPv6 hosts under ours and Apache's in turn."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest

from cometmq.testing.cluster import LocalCluster
from cometmq.wire.records import log_record as stored
from interop.apache import ApacheCluster
from interop.side_by_side.exchanges import Talk
from interop.side_by_side.fields import group_queue, make_topic, pull, send_v2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
LEVELS = "1s 4s"
TOPIC, GROUP = "State", "state-group"
LONG = "%DLQ%" + "G" * 150
"""A topic of more than 127 bytes, so that its records are of version 2."""
V6_BOTH = 0x30
ORDERS = [["ours", "apache", "ours"], ["apache", "ours", "apache"]]


class Broker:
    """One side on the store, asked over raw connections."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._numbers = talk, count()

    def ask(self, code: int, ext: dict, body: object = b"", *, fine: bool = True):
        answer = self._talk.ask(str(next(self._numbers)), code, ext, body).answer
        assert answer is not None
        assert not fine or answer.code == 0, (code, ext, answer)
        return answer

    def records(self, topic: str, queue: int = 0) -> list[stored.StoredRecord]:
        answer = self.ask(11, pull(topic, queue), fine=False)
        return list(stored.iterate(answer.body)) if answer.code == 0 else []

    def wait_for(self, topic: str, number: int, queue: int = 0) -> list[stored.StoredRecord]:
        deadline = time.monotonic() + 20
        while len(found := self.records(topic, queue)) < number:
            assert time.monotonic() < deadline, f"{len(found)} of {number} in {topic}"
            time.sleep(0.1)
        return found


@contextmanager
def on(
    side: str, jars: Path, folder: Path, host: str = "127.0.0.1", **settings
) -> Iterator[Broker]:
    """The store of this folder under one side."""
    given = {"brokerName": "broker-a", "messageDelayLevel": LEVELS, **settings}
    if side == "ours":
        cluster: LocalCluster | ApacheCluster = LocalCluster(folder / "store", apart=True, **given)
        cluster.start()
    else:
        cluster = ApacheCluster(jars, folder, **given)
    try:
        port = cluster.broker.rpartition(":")[2]
        with Talk(cluster.namesrv, f"{host}:{port}") as talk:
            yield Broker(talk)
    finally:
        cluster.stop()


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_topics_groups_offsets_and_delays_go_along(
    apache_jars: Path, tmp_path: Path, order: list[str]
) -> None:
    first, *others = order
    with on(first, apache_jars, tmp_path) as broker:
        broker.ask(17, make_topic(TOPIC, 3, attributes="+message.type=DELAY"))
        broker.ask(200, {}, {"groupName": GROUP, "retryMaxTimes": 5, "consumeEnable": True})
        broker.ask(310, send_v2(TOPIC, 1, {"UNIQ_KEY": "0A" * 16}), b"at once")
        broker.wait_for(TOPIC, 1, 1)
        broker.ask(15, group_queue(1, TOPIC, GROUP, commitOffset="1"))
        broker.ask(310, send_v2(TOPIC, 2, {"DELAY": "2", "UNIQ_KEY": "0B" * 16}), b"later 1")
        due = time.monotonic() + 4
    for turn, side in enumerate(others, 1):
        with on(side, apache_jars, tmp_path) as broker:
            topic = json.loads(broker.ask(351, {"topic": TOPIC, "lo": "true"}).body)
            assert (topic["readQueueNums"], topic["writeQueueNums"]) == (3, 3)
            assert topic["attributes"] == {"message.type": "DELAY"}
            group = json.loads(broker.ask(352, {"group": GROUP}).body)
            assert group["retryMaxTimes"] == 5
            assert broker.ask(14, group_queue(1, TOPIC, GROUP)).ext["offset"] == str(turn)
            assert broker.records(TOPIC, 1)[0].body == b"at once"
            late = broker.wait_for(TOPIC, turn, 2)
            assert time.monotonic() >= due - 0.1, "delivered early"
            assert [each.body for each in late] == [b"later %d" % n for n in range(1, turn + 1)]
            broker.ask(310, send_v2(TOPIC, 1), b"turn %d" % turn)
            broker.wait_for(TOPIC, turn + 1, 1)
            broker.ask(15, group_queue(1, TOPIC, GROUP, commitOffset=str(turn + 1)))
            body = b"later %d" % (turn + 1)
            broker.ask(310, send_v2(TOPIC, 2, {"DELAY": "2", "UNIQ_KEY": "0C" * 16}), body)
            due = time.monotonic() + 4


def test_records_of_version_2_are_read_by_the_other(apache_jars: Path, tmp_path: Path) -> None:
    """Only ours writes one: Apache 5.5.0 takes long names from POP alone."""
    with on("ours", apache_jars, tmp_path) as broker:
        broker.ask(310, send_v2(LONG), b"long")
        broker.wait_for(LONG, 1)
    for side in ("apache", "ours"):
        with on(side, apache_jars, tmp_path) as broker:
            (record,) = broker.records(LONG)
            assert (record.body, record.topic, record.magic) == (b"long", LONG, stored.MAGIC_V2)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_records_with_ipv6_hosts_are_read_by_the_other(
    apache_jars: Path, tmp_path: Path, order: list[str]
) -> None:
    for turn, side in enumerate(order, 1):
        ours = {"bindAddress": "::", "brokerIP1": "::1"} if side == "ours" else {}
        with on(side, apache_jars, tmp_path, "[::1]", **ours) as broker:
            if turn == 1:
                broker.ask(17, make_topic("Six", 1))
            assert [each.body for each in broker.wait_for("Six", turn - 1)] == [
                b"six %d" % n for n in range(1, turn)
            ]
            broker.ask(310, send_v2("Six"), b"six %d" % turn)
            newest = broker.wait_for("Six", turn)[-1]
            assert len(newest.born_host) == 20
            assert newest.sys_flag & V6_BOTH == (V6_BOTH if side == "ours" else 0x10)
