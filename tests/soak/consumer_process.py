"""A member of a group in a process of its own: one line for each message that it has handled.

Called with one JSON argument: namesrv, group, topics, order, fails (the share of calls that fail),
seen (the file that it writes). Ends cleanly when its standard input does.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from threading import Lock
from time import time

from cometmq import ConsumeFrom, MessageExt, PushConsumer, RetryLater


def main() -> None:
    settings = json.loads(sys.argv[1])
    lock = Lock()
    consumer = PushConsumer(
        settings["group"],
        namesrv=settings["namesrv"],
        order=settings["order"],
        consume_from=ConsumeFrom.FIRST,
        rebalance_s=2.0,
        lock_renew_s=0.5,
        lock_valid_s=2.0,
        persist_s=0.5,
    )
    with Path(settings["seen"]).open("a", buffering=1) as seen:

        def handle(messages: list[MessageExt]) -> None:
            if random.random() < settings["fails"]:
                raise RetryLater("by chance", suspend_ms=20)
            with lock:
                for message in messages:
                    line = [time(), message.topic, message.body.decode()]
                    seen.write(json.dumps(line) + "\n")

        for topic in settings["topics"]:
            consumer.subscribe(topic, "*", handle)
        with consumer:
            sys.stdin.read()


if __name__ == "__main__":
    main()
