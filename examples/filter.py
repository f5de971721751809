"""Get only what you want: by tags, or by a condition in SQL92 on the properties.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
A broker of its own (`cometmq broker`) takes conditions with `enablePropertyFilter=true` only.
"""

import os
import threading
from collections.abc import Sequence

from cometmq import ConsumeFrom, Message, MessageExt, MessageSelector, Producer, PushConsumer

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
SORTS = (("apple", "FRUIT", 3), ("melon", "FRUIT", 9), ("leek", "GREENS", 2), ("nut", "DRY", 8))

with Producer("example-market", namesrv=namesrv) as producer:
    for name, tag, price in SORTS:
        pairs = {"price": str(price), "organic": str(price > 5).lower()}
        producer.send(Message("market", name.encode(), tags=tag, properties=pairs))


def bought(group: str, expression: str | MessageSelector, count: int) -> set[bytes]:
    """The bodies that a new group gets by an expression."""
    basket: set[bytes] = set()
    complete = threading.Event()

    def put(messages: Sequence[MessageExt]) -> None:
        basket.update(message.body for message in messages)
        if len(basket) >= count:
            complete.set()

    consumer = PushConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe("market", expression, put)
    with consumer:
        assert complete.wait(30), "the messages did not come"
    print(expression, "gives", sorted(basket))
    return basket


assert bought("example-cooks", "FRUIT || GREENS", 3) == {b"apple", b"melon", b"leek"}
dear = MessageSelector.by_sql("price BETWEEN 5 AND 10 AND organic = TRUE")
assert bought("example-gourmets", dear, 2) == {b"melon", b"nut"}
