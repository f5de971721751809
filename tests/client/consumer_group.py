"""Members of a group in processes of their own, a source of messages, and the judge of both."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from client import consumer_process
from cometmq import Message, Producer

if TYPE_CHECKING:
    from pathlib import Path

QUEUES, KEYS = 8, 40


class Member:
    """One member in its own process."""

    def __init__(self, seen: Path, **settings):
        self._seen = seen
        options = {"orderly": True, "batch_size": 1, "pause_s": 0.0} | settings
        argument = json.dumps(options | {"seen": str(seen)})
        self.process = subprocess.Popen(
            [sys.executable, consumer_process.__file__, argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def seen(self):
        """What its handler saw: time, queue id, offset, body."""
        if not self._seen.exists():
            return []
        lines = self._seen.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def kill(self):
        self.process.kill()
        self._wait()

    def stop(self):
        """End it cleanly; how many messages it knows to have had beside another member."""
        self.process.stdin.close()
        overlaps = self.process.stdout.read()
        self._wait()
        assert self.process.returncode == 0
        return int(overlaps)

    def _wait(self):
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


class Source(threading.Thread):
    """Sends numbered messages of many keys, part by part, until `end`."""

    def __init__(self, cluster, topic, pause_s=0.01):
        super().__init__()
        self._cluster, self._topic, self._pause_s = cluster, topic, pause_s
        self._ended = threading.Event()
        self.count = 0

    def run(self):
        with Producer("producers", namesrv=self._cluster.namesrv) as producer:
            while not self._ended.wait(self._pause_s):
                part = range(self.count, self.count + KEYS)
                producer.send_many(
                    [
                        Message(
                            self._topic,
                            b"%d %d" % (n % KEYS, n // KEYS),
                            sharding_key=str(n % KEYS),
                        )
                        for n in part
                    ],
                    timeout_s=30,
                )
                self.count += KEYS

    def end(self):
        self._ended.set()
        self.join(60)
        return self.count


def audit(members):
    """The steps of every key as its handlers saw them, in time; order and gaps are checked."""
    entries = sorted(entry for one in members for entry in one.seen)
    last, repeats = defaultdict(lambda: -1), 0
    for _, _, _, body in entries:
        key, step = map(int, body.split())
        assert step <= last[key] + 1, f"key {key}: step {step} after {last[key]}"
        repeats += step <= last[key]
        last[key] = max(last[key], step)
    return sum(step + 1 for step in last.values()), repeats


def queues_of(one, since=0):
    return {entry[1] for entry in one.seen[since:]}
