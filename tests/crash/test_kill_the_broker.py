"""A broker is killed under load: every message that it acknowledged is there after a restart."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from threading import Thread

import pytest

from broker.commands import send_header
from cometmq.errors import RemotingError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from crash.pulled_messages import ANSWER_WITHIN_S, pull
from oracle_runs import record_run

REPLAY = "pytest tests/crash/test_kill_the_broker.py"
TOPIC, QUEUES, WINDOW = "CrashTest", 4, 16
ALL_EVERY = 20
"""In so many rounds all messages are read again once, and in the last three; else only new ones."""


class Sender(Thread):
    """Sends windows of messages until the connection breaks; keeps what was acknowledged."""

    def __init__(self, broker: str, name: int) -> None:
        super().__init__()
        self.broker, self.number = broker, name * 1_000_000
        self.acked: dict[int, dict[int, bytes]] = defaultdict(dict)

    def run(self) -> None:
        try:
            with BlockingChannel(self.broker, ANSWER_WITHIN_S) as channel:
                while True:
                    self._send_window(channel)
        except RemotingError:
            pass  # the broker is dead, as it should be

    def _send_window(self, channel: BlockingChannel) -> None:
        sent = []
        for _ in range(WINDOW):
            self.number += 1
            body = b"%d " % self.number + bytes(self.number % 700)
            header = send_header(
                TOPIC,
                default_topic_queue_nums=QUEUES,
                queue_id=self.number % QUEUES,
                properties={"UNIQ_KEY": str(self.number)},
            )
            sent.append((channel.post(RequestCode.SEND_MESSAGE_V2, header, body), body))
        for opaque, body in sent:
            answer = channel.wait(opaque)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            queue_id, offset = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
            self.acked[queue_id][offset] = body


def kill_and_compare(cluster: LocalCluster, rounds: int, rng: Random) -> int:
    """Kill the broker under load `rounds` times; how many acknowledged messages were compared."""
    acked: dict[int, dict[int, bytes]] = defaultdict(dict)
    read: dict[int, dict[int, bytes]] = defaultdict(dict)
    for round_ in range(rounds):
        senders = [Sender(cluster.broker, round_ * 10 + number) for number in range(3)]
        for sender in senders:
            sender.start()
        senders[0].join(rng.choice((0.1, 0.3, 0.6)))
        cluster.kill()
        for sender in senders:
            sender.join()
            for queue_id, offsets in sender.acked.items():
                assert not acked[queue_id].keys() & offsets.keys(), "an offset was given twice"
                acked[queue_id] |= offsets
        cluster.restart()
        if round_ % ALL_EVERY == 0 or rounds - round_ <= 3:
            read.clear()
        for queue_id, offsets in acked.items():
            found = read[queue_id] = pull(cluster.broker, TOPIC, queue_id, read[queue_id])
            assert sorted(found) == list(range(len(found)))
            assert {offset: found.get(offset) for offset in offsets} == offsets
            bodies = list(found.values())
            assert len(set(bodies)) == len(bodies)
    compared = sum(len(offsets) for offsets in acked.values())
    assert compared > 10 * rounds
    return compared


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_a_killed_broker_acknowledged_is_there_again(tmp_path, flush):
    sizes = {"commit_log_file_bytes": 5 << 20}
    with LocalCluster(tmp_path / "store", flush_disk_type=flush, **sizes) as cluster:
        compared = kill_and_compare(cluster, 3, Random(1))
    record_run("kill-broker", flush, replay=REPLAY, kills=3, messages_compared=compared)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_a_two_hundred_times_killed_broker_acknowledged_is_there_again(tmp_path, flush):
    store = tmp_path / "store"
    with LocalCluster(store, timeout_s=ANSWER_WITHIN_S, flush_disk_type=flush) as cluster:
        compared = kill_and_compare(cluster, 200, Random(2))
    replay = f"pytest -m slow {REPLAY.partition(' ')[2]}"
    record_run("kill-broker-200", flush, replay=replay, kills=200, messages_compared=compared)
