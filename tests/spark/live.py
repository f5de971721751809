"""A broker in a process of its own, and a sender that says which queue a message goes to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from cometmq.net.blocking import BlockingChannel
from cometmq.wire import batch, properties
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.admin import CreateTopicRequestHeader
from cometmq.wire.headers.send import SendMessageRequestHeaderV2

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

START_S = 30


class Live:
    """`cometmq standalone` on free ports; `kill` and `start` again on the same ones."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports = ["0", "0"]
        self.namesrv = self.broker = ""
        self.start()

    def start(self) -> None:
        ready = self._root / "ready.json"
        ready.unlink(missing_ok=True)
        code = "from cometmq.cli.main import main; main()"
        arguments = ["standalone", "--store", str(self._root / "store")]
        arguments += ["--namesrv-port", self._ports[0], "--broker-port", self._ports[1]]
        arguments += ["--ready-file", str(ready)]
        with (self._root / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments], stdout=log, stderr=log
            )
        end = time.monotonic() + START_S
        while not ready.exists():
            assert self._process.poll() is None, (self._root / "log").read_text()
            assert time.monotonic() < end, "the broker is not ready"
            time.sleep(0.02)
        facts = json.loads(ready.read_text())
        self.namesrv, self.broker = facts["namesrv"], facts["broker"]
        self._ports = [addr.rpartition(":")[2] for addr in (self.namesrv, self.broker)]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        finally:
            self._process.kill()

    def make_topic(self, topic: str, queues: int) -> str:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
        )
        self._call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return topic

    def send(
        self,
        topic: str,
        queue_id: int,
        bodies: Iterable[bytes],
        pairs: dict[str, str] | None = None,
    ) -> None:
        """Batches of at most 500 messages for one queue, each acknowledged."""
        items = [batch.BatchItem(0, body, properties.encode(pairs or {})) for body in bodies]
        with BlockingChannel(self.broker) as channel:
            for at in range(0, len(items), 500):
                header = SendMessageRequestHeaderV2(
                    producer_group="spark-tests",
                    topic=topic,
                    default_topic="TBW102",
                    default_topic_queue_nums=4,
                    queue_id=queue_id,
                    sys_flag=0,
                    born_timestamp=time.time_ns() // 1_000_000,
                    flag=0,
                    batch=True,
                )
                data = batch.encode(items[at : at + 500])
                answer = channel.call(RequestCode.SEND_BATCH_MESSAGE, header, data)
                assert answer.code == ResponseCode.SUCCESS, answer

    def _call(self, code: RequestCode, header: CreateTopicRequestHeader) -> None:
        with BlockingChannel(self.broker) as channel:
            answer = channel.call(code, header)
        assert answer.code == ResponseCode.SUCCESS, answer
