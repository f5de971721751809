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
    settings = json.loads(sys.argv[1])
    lock = Lock()
    with Path(settings["seen"]).open("a", buffering=1) as seen:

        def note(messages: list[MessageExt]) -> None:
            if random.random() < settings.get("fails", 0.0):
                raise RetryLater("bad luck", suspend_ms=20)
            with lock:
                for message in messages:
                    entry = [time.time(), message.queue_id, message.queue_offset]
                    seen.write(json.dumps([*entry, message.body.decode()]) + "\n")
            time.sleep(settings["pause_s"])

        consumer = PushConsumer(
            settings["group"],
            namesrv=settings["namesrv"],
            order=settings.get("order") or ("queue" if settings["orderly"] else "none"),
            state_dir=settings.get("state_dir", "state"),
            consume_from=ConsumeFrom.FIRST,
            batch_size=settings["batch_size"],
            rebalance_s=settings.get("rebalance_s", 2.0),
            lock_renew_s=settings.get("lock_renew_s", 0.5),
            lock_valid_s=settings.get("lock_valid_s", 2.0),
            persist_s=0.5,
            instance_name=settings.get("instance_name"),
        )
        consumer.subscribe(settings["topic"], "*", note)
        with consumer:
            sys.stdin.read()
            sys.stdout.write(f"{consumer.overlaps}\n")


if __name__ == "__main__":
    main()
