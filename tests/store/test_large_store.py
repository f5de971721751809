"""10 GiB of log and 10,000 queues under `ulimit -n 1024`: bounded memory, files and mappings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cometmq.wire.records import log_record as stored

if TYPE_CHECKING:
    from pathlib import Path

TOPICS, QUEUES, FILE_BYTES, FILES = 10, 1000, 1 << 30, 10
BODY = 4 * 1024 * 1024 - 1000
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
START_MS = 1_700_000_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Log:
    """Writes records whose bodies are holes, so that 10 GiB take little of the disk."""

    def __init__(self, root: Path) -> None:
        self.directory, self.at = root / "commitlog", 0
        self.directory.mkdir(parents=True)
        self.fd = -1
        self.number: dict[tuple[str, int], int] = {}

    def put(self, topic: str, queue_id: int, body: bytes) -> None:
        number = self.number.get((topic, queue_id), 0)
        self.number[topic, queue_id] = number + 1
        keys = b"KEYS\x01%d\x02" % self.at
        fields = (topic, queue_id, 0, number, self.at, 0, START_MS, HOST, START_MS, HOST, 0, 0)
        raw = stored.encode(*fields, body, keys, with_crc=False)
        room = FILE_BYTES - self.at % FILE_BYTES
        if room < len(raw) + 8:
            os.pwrite(self.fd, stored.BLANK.pack(room, stored.MAGIC_BLANK), FILE_BYTES - room)
            self.at += room
            self.number[topic, queue_id] = number
            return self.put(topic, queue_id, body)
        if room == FILE_BYTES:
            path = self.directory / f"{self.at:020d}"
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
            os.ftruncate(self.fd, FILE_BYTES)
        at = self.at % FILE_BYTES
        os.pwrite(self.fd, raw[:200], at)
        if len(raw) > 400:
            os.pwrite(self.fd, raw[-200:], at + len(raw) - 200)
        self.at += len(raw)
        return None


def build(root: Path) -> int:
    """Every queue gets two small messages, the first topic's queues the large ones."""
    log = Log(root)
    zeros, large = bytes(BODY), 0
    for _ in range(2):
        for queue in range(TOPICS * QUEUES):
            log.put(f"T{queue // QUEUES}", queue % QUEUES, b"small")
    while log.at < (FILES - 1) * FILE_BYTES + FILE_BYTES // 2:
        log.put("T0", large % QUEUES, zeros)
        large += 1
    return log.at


def test_ten_gigabytes_and_ten_thousand_queues_fit_into_little_memory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    end = build(root)
    assert end > 10 * 1000**3 * 0.95
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(root)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["private_mb"] <= 300
    assert found["open_files"] < 512
    assert found["mappings"] < 1000
    sizes = [path.stat() for path in root.rglob("*") if path.is_file()]
    assert sum(stat.st_size for stat in sizes) > 60 * 10**9, "files have full size"
    assert sum(stat.st_blocks * 512 for stat in sizes) < 2 * 10**9, "and take what is in them"


_CHILD = f"""
import json, resource, sys, time
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from cometmq import Admin
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.testing.cluster import LocalCluster
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.pull import PullMessageRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2

TOPICS, QUEUES = {TOPICS}, {QUEUES}


def private_mb(pid):
    lines = Path(f"/proc/{{pid}}/status").read_text().splitlines()
    return max(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) // 1024


def pull(channel, topic, queue_id, offset):
    header = PullMessageRequestHeader(
        consumer_group="g", topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=32,
        sys_flag=4, subscription="*", expression_type="TAG",
    )
    return channel.call(RequestCode.PULL_MESSAGE, header, timeout_s=60)


def send(channel, topic, queue_id):
    header = SendMessageRequestHeaderV2(
        producer_group="g", topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=queue_id, sys_flag=0, born_timestamp=1, flag=0, properties="KEYS\\x01new\\x02",
    )
    return channel.call(RequestCode.SEND_MESSAGE_V2, header, b"fresh", timeout_s=60)


begin = time.monotonic()
with LocalCluster(sys.argv[1], timeout_s=300, max_message_bytes=4194304) as cluster:
    opened = time.monotonic() - begin
    peak = private_mb(cluster.pid)
    with Admin(namesrv=cluster.namesrv) as admin:
        for number in range(TOPICS):
            admin.create_topic(f"T{{number}}", queues=QUEUES)
    with BlockingChannel(cluster.broker, 60) as channel:
        for queue in range(TOPICS * QUEUES):
            answer = pull(channel, f"T{{queue // QUEUES}}", queue % QUEUES, 0)
            assert answer.code == ResponseCode.SUCCESS, answer
        peak = max(peak, private_mb(cluster.pid))
        for queue in range(0, QUEUES, 7):  # the large ones, from all over the log
            offset = 2
            while (answer := pull(channel, "T0", queue, offset)).code == ResponseCode.SUCCESS:
                offset = int(answer.ext["nextBeginOffset"])
        peak = max(peak, private_mb(cluster.pid))
        for queue in range(TOPICS * QUEUES):
            answer = send(channel, f"T{{queue // QUEUES}}", queue % QUEUES)
            assert answer.code == ResponseCode.SUCCESS, answer
        until = time.monotonic() + 25
        while time.monotonic() < until:
            peak = max(peak, private_mb(cluster.pid))
            time.sleep(0.5)
    print(json.dumps({{
        "opened_s": round(opened, 1),
        "private_mb": peak,
        "open_files": len(list(Path(f"/proc/{{cluster.pid}}/fd").iterdir())),
        "mappings": len(Path(f"/proc/{{cluster.pid}}/maps").read_text().splitlines()),
    }}))
"""
