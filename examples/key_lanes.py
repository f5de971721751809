"""Keys side by side, each in its order; a bad message is stored in SQLite and its key goes on.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import sqlite3
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cometmq import Message, MessageExt, OnFailure, Producer, PushConsumer, TableSink

STEPS, ACCOUNTS = 10, 20
namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
folder = Path(tempfile.mkdtemp())
seen: dict[str, list[int]] = defaultdict(list)
lock, complete = threading.Lock(), threading.Event()


def book(messages: Sequence[MessageExt]) -> None:
    """Called for one message of an account at a time; 8 accounts at once."""
    message = messages[0]
    step = int(message.body)  # ValueError for the bad one
    time.sleep(0.01)
    with lock:
        seen[message.sharding_key or ""].append(step)
        if sum(map(len, seen.values())) == STEPS * ACCOUNTS:
            complete.set()


failed = TableSink(lambda: sqlite3.connect(folder / "failed.db"), "failed")
with closing(sqlite3.connect(folder / "failed.db")) as database:
    database.execute(failed.schema())

with Producer("example-bank", namesrv=namesrv) as producer:
    producer.send_many(
        [
            Message(
                "bookings", b"%d" % step if step >= 0 else b"bad", sharding_key=f"acc-{account}"
            )
            for step in range(-1, STEPS)
            for account in range(ACCOUNTS)
            if step >= 0 or account == 0
        ]
    )

consumer = PushConsumer(
    "example-bookers",
    namesrv=namesrv,
    order="key",
    consume_threads=8,
    consume_from="first",
    suspend_ms=50,
    state_dir=folder,
)
consumer.subscribe(
    "bookings",
    "*",
    book,
    on_failure={ValueError: OnFailure.store(failed, after=2), Exception: OnFailure.block()},
)
with consumer:
    assert complete.wait(60), "not all was booked"
assert all(steps == list(range(STEPS)) for steps in seen.values())
with closing(sqlite3.connect(folder / "failed.db")) as database:
    rows = database.execute("SELECT sharding_key, attempts, reason FROM failed").fetchall()
print(len(seen), "accounts, each in order; stored:", rows)
