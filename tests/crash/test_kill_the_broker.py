"""A broker is killed under load: every message that it acknowledged is there after a restart."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from cometmq.testing.cluster import LocalCluster
from crash.pulled_messages import ANSWER_WITHIN_S, pull
from crash.window_sender import TOPIC, Sender
from oracle_runs import record_run

REPLAY = "pytest tests/crash/test_kill_the_broker.py"
ALL_EVERY = 20
"""In so many rounds all messages are read again once, and in the last three; else only new ones."""


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
