"""A message and a row that live or die together, even when the process dies in between.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
"""

import os
import sqlite3

from cometmq import Message, MessageExt, Producer

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
books = sqlite3.connect(":memory:", check_same_thread=False)
books.execute("create table paid (number text primary key)")


def check(message: MessageExt) -> bool:
    """A broker heard nothing of this message: was it paid?"""
    found = books.execute("select 1 from paid where number = ?", message.keys)
    return found.fetchone() is not None


def pay(producer: Producer, number: str) -> bool:
    """Write the row and send the message, both or none."""
    try:
        with producer.transaction() as tx, books:
            tx.send(Message("paid", number.encode(), keys=number))
            books.execute("insert into paid values (?)", (number,))
    except sqlite3.IntegrityError:
        return False
    return True


with Producer("example-payments", namesrv=namesrv, check=check) as payments:
    print([pay(payments, number) for number in ("o-1", "o-2", "o-1")])
