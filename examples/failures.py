"""What becomes of a message that fails, by the type of its error; the hopeless go to SQLite.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cometmq import Message, MessageExt, OnFailure, Producer, PushConsumer, TableSink

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
place = Path(tempfile.mkdtemp()) / "failed.db"
calls, complete = Counter[bytes](), threading.Event()

failed = TableSink(lambda: sqlite3.connect(place), "failed")  # any DB-API driver will do
with closing(sqlite3.connect(place)) as database:
    database.execute(failed.schema())


def take(messages: Sequence[MessageExt]) -> None:
    """Raises in three ways; which one is hopeless is said at `subscribe`, not here."""
    body = messages[0].body
    calls[body] += 1
    if body == b"the bank is away" and calls[body] < 3:
        raise ConnectionError("no answer")
    if body == b"old news":
        raise LookupError("nobody waits for it")
    if body == b"end":
        complete.set()
    elif body != b"the bank is away":
        int(body)  # ValueError for what is no number


with Producer("example-tellers", namesrv=namesrv) as producer:
    for body in (b"100", b"a hundred", b"old news", b"the bank is away", b"end"):
        producer.send(Message("payments-in", body, sharding_key="account-1"))

consumer = PushConsumer(
    "example-cashiers", namesrv=namesrv, order="queue", consume_from="first", suspend_ms=50
)
consumer.subscribe(
    "payments-in",
    "*",
    take,
    on_failure={
        ValueError: OnFailure.store(failed, after=2),  # the row is written, then the offset moves
        LookupError: OnFailure.skip(),
        ConnectionError: OnFailure.block(pause_ms=100, pause_most_ms=5_000),
        Exception: OnFailure.retry(5),  # then a dead letter of the group
    },
)
with consumer:
    assert complete.wait(60), "the messages did not come"
print(dict(calls))
assert [calls[body] for body in (b"100", b"a hundred", b"old news", b"the bank is away")] == [
    1, 2, 1, 3,
]  # fmt: skip
with closing(sqlite3.connect(place)) as database:
    rows = database.execute("SELECT body, attempts, error_type, reason FROM failed").fetchall()
print(rows)
assert [row[0] for row in rows] == [b"a hundred"]
