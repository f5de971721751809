"""A member of a group in a process of its own: writes what its handler saw, line by line.

Called with one JSON argument; ends when its standard input does.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from threading import Lock

from cometmq import ConsumeFrom, MessageExt, PushConsumer, RetryLater


def main() -> None:
    told = json.loads(sys.argv[1])
    lock = Lock()
    with Path(told["seen"]).open("a", buffering=1) as seen:

        def note(messages: list[MessageExt]) -> None:
            if random.random() < told.get("fails", 0.0):
                raise RetryLater("bad luck", suspend_ms=20)
            with lock:
                for message in messages:
                    entry = [time.time(), message.queue_id, message.queue_offset]
                    seen.write(json.dumps([*entry, message.body.decode()]) + "\n")
            time.sleep(told["pause_s"])

        consumer = PushConsumer(
            told["group"],
            namesrv=told["namesrv"],
            order=told.get("order") or ("queue" if told["orderly"] else "none"),
            state_dir=told.get("state_dir", "state"),
            consume_from=ConsumeFrom.FIRST,
            batch_size=told["batch_size"],
            rebalance_s=told.get("rebalance_s", 2.0),
            lock_renew_s=told.get("lock_renew_s", 0.5),
            lock_valid_s=told.get("lock_valid_s", 2.0),
            persist_s=0.5,
            instance_name=told.get("instance_name"),
        )
        consumer.subscribe(told["topic"], "*", note)
        with consumer:
            sys.stdin.read()
            sys.stdout.write(f"{consumer.overlaps}\n")


if __name__ == "__main__":
    main()
