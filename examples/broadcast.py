"""Tell every process of a group: two members, and each gets all messages.

Needs a broker: `cometmq standalone --store var/store`. Say where with NAMESRV_ADDR.
Each member keeps its own offsets in a file; its instance name must be the same after a restart.
"""

import os
import tempfile
import threading
from collections.abc import Sequence

from cometmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer

namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
heard: dict[str, set[bytes]] = {"left": set(), "right": set()}
complete = threading.Event()


def member(name: str, folder: str) -> PushConsumer:
    """A member that drops its cache entries when it is told to."""

    def forget(messages: Sequence[MessageExt]) -> None:
        heard[name].update(message.body for message in messages)
        if all(len(bodies) == 3 for bodies in heard.values()):
            complete.set()

    consumer = PushConsumer(
        "example-caches",
        namesrv=namesrv,
        broadcasting=True,
        instance_name=name,
        offsets_dir=folder,  # ~/.rocketmq_offsets when left out
        consume_from=ConsumeFrom.FIRST,
    )
    consumer.subscribe("cache-entries-to-drop", "*", forget)
    return consumer


with Producer("example-writers", namesrv=namesrv) as producer:
    for key in (b"user-1", b"user-2", b"price-9"):
        producer.send(Message("cache-entries-to-drop", key))

with (
    tempfile.TemporaryDirectory() as folder,
    member("left", folder),
    member("right", folder),
):
    complete.wait(30)
print({name: sorted(bodies) for name, bodies in heard.items()})
assert heard["left"] == heard["right"]
