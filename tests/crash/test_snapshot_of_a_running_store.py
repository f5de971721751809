"""`cometmq store snapshot` under load: the copy has all that was acknowledged before it began."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from cli.shell import COMMAND, cometmq, sentence
from cometmq.client.blocking.admin import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from crash.pulled_messages import ANSWER_WITHIN_S, pull
from crash.window_sender import QUEUES, TOPIC, Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZES = {"commit_log_file_bytes": 5 << 20, "max_hash_slot_num": 5000, "max_index_num": 20_000}
LAYOUT = ("--index-slots", "5000", "--index-entries", "20000")
BOUND_S = 60


class Committer(Thread):
    """Commits offsets of queue 0 one after the other until its broker ends."""

    def __init__(self, broker: str) -> None:
        super().__init__()
        self.broker, self.committed, self.ended = broker, 0, Event()

    def run(self) -> None:
        with BlockingChannel(self.broker, ANSWER_WITHIN_S) as channel:
            while not self.ended.is_set():
                header = UpdateConsumerOffsetRequestHeader(
                    consumer_group="CG", topic=TOPIC, queue_id=0, commit_offset=self.committed + 1
                )
                answer = channel.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                self.committed += 1
                time.sleep(0.001)


@contextmanager
def load(cluster: LocalCluster) -> Iterator[tuple[list[Sender], Committer]]:
    """Three senders that fill several files of the log, and one who commits."""
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group("CG")
    senders = [Sender(cluster.broker, number) for number in range(3)]
    committer = Committer(cluster.broker)
    for each in senders:
        each.start()
    wait_until(lambda: sum(len(found) for s in senders for found in s.acked.values()) > 24_000)
    committer.start()
    wait_until(lambda: committer.committed > 20)
    try:
        yield senders, committer
    finally:
        committer.ended.set()
        committer.join()
        cluster.kill()  # which ends the senders
        for each in senders:
            each.join()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def acknowledged(senders: list[Sender]) -> dict[int, dict[int, bytes]]:
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    for sender in senders:
        for queue_id in range(QUEUES):
            found[queue_id] |= dict(sender.acked[queue_id])  # one step: the sender goes on
    return found


def check_copy(target: Path, acked: dict[int, dict[int, bytes]], committed: int) -> None:
    """Verify the copy, start a broker on it, and look for everything."""
    verified = cometmq("store", "verify", str(target), *LAYOUT)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with LocalCluster(target, timeout_s=BOUND_S, **SIZES) as restored:
        for queue_id, offsets in acked.items():
            found = pull(restored.broker, TOPIC, queue_id, {})
            assert sorted(found) == list(range(len(found)))
            assert {offset: found.get(offset) for offset in offsets} == offsets
        with BlockingChannel(restored.broker, ANSWER_WITHIN_S) as channel:
            header = QueryConsumerOffsetRequestHeader(consumer_group="CG", topic=TOPIC, queue_id=0)
            answer = channel.call(RequestCode.QUERY_CONSUMER_OFFSET, header)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert int(answer.ext["offset"]) >= committed
    stopped = cometmq("store", "verify", str(target), *LAYOUT)
    assert stopped.stdout.endswith("whole\n"), stopped.stdout


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_snapshot_under_load_has_all_that_was_acknowledged_before(
    tmp_path: Path, flush: str
) -> None:
    store, target = tmp_path / "store", tmp_path / "copy"
    with (
        LocalCluster(store, timeout_s=BOUND_S, flush_disk_type=flush, **SIZES) as cluster,
        load(cluster) as (senders, committer),
    ):
        acked, committed = acknowledged(senders), committer.committed
        done = cometmq("store", "snapshot", str(store), str(target), "--json")
        assert done.returncode == 0, done.stderr
        assert all(sender.is_alive() for sender in senders), "the load went on"
    facts = json.loads(done.stdout)
    assert facts["was_running"]
    assert facts["log_end"] > 2 * SIZES["commit_log_file_bytes"]
    check_copy(target, acked, committed)
    assert "is not empty" in sentence(cometmq("store", "snapshot", str(store), str(target)))


def test_a_killed_snapshot_is_no_store_and_the_next_one_is_whole(tmp_path: Path) -> None:
    store, broken, target = tmp_path / "store", tmp_path / "broken", tmp_path / "copy"
    with (
        LocalCluster(store, timeout_s=BOUND_S, **SIZES) as cluster,
        load(cluster) as (senders, committer),
    ):
        first = "0" * 20
        process = subprocess.Popen([COMMAND, "store", "snapshot", str(store), str(broken)])
        wait_until(lambda: (broken / "commitlog.unfinished" / first).exists())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (broken / "commitlog").exists(), "it was killed too late"
        acked, committed = acknowledged(senders), committer.committed
        assert "broken off" in sentence(cometmq("store", "verify", str(broken)))
        assert "broken off" in sentence(cometmq("broker", "-p0", "--store", str(broken)))
        wait_until(lambda: not (store / "snapshot.request").exists())  # the broker noticed
        done = cometmq("store", "snapshot", str(store), str(target))
        assert done.returncode == 0, done.stderr
    check_copy(target, acked, committed)


def test_a_broker_killed_during_a_snapshot_leaves_a_copy_that_is_whole(tmp_path: Path) -> None:
    """The command waits for the broker that is gone (30 s), then copies what it left."""
    store, target = tmp_path / "store", tmp_path / "copy"
    with (
        LocalCluster(store, timeout_s=BOUND_S, **SIZES) as cluster,
        load(cluster) as (senders, committer),
    ):
        acked, committed = acknowledged(senders), committer.committed
        command = [COMMAND, "store", "snapshot", str(store), str(target)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: (target / "commitlog.unfinished" / ("0" * 20)).exists())
        committer.ended.set()
        committer.join()
        cluster.kill()
        assert not (target / "commitlog").exists(), "it was killed too late"
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    check_copy(target, acked, committed)


def test_a_full_disk_is_one_sentence_and_leaves_no_store(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "copy"
    with LocalCluster(store, timeout_s=BOUND_S, **SIZES) as cluster:
        sender = Sender(cluster.broker, 0)
        sender.start()
        wait_until(lambda: sum(map(len, sender.acked.values())) > 1_000)
        limited = f"ulimit -f 100; exec {COMMAND} store snapshot {store} {target}"
        done = subprocess.run(
            ["sh", "-c", limited], capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        cluster.kill()
        sender.join()
    said = sentence(done)
    assert said.startswith(f"the snapshot broke off at {target / 'commitlog.unfinished'}/"), said
    assert "File too large" in said
    assert "delete it and take another snapshot where there is room" in said
    assert "broken off" in sentence(cometmq("store", "verify", str(target)))
