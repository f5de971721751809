"""A program that consumes until a signal ends it: started by tests that send one.

Called with one JSON argument. Its handler writes a line for each message it begins and one for each
it has done; `ended` on standard output is the last thing that it writes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from cometmq import AsyncPushConsumer, ConsumeFrom, MessageExt, PushConsumer


class Notes:
    """The handler, plain or async, and the file in which it notes what it does."""

    def __init__(self, path: str, pause_s: float) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - open until the end
        self._pause_s = pause_s

    def _note(self, what: str, message: MessageExt) -> None:
        entry = [what, time.time(), message.queue_id, message.queue_offset]
        self._file.write(json.dumps(entry) + "\n")

    def handle(self, messages: list[MessageExt]) -> None:
        self._note("begun", messages[0])
        time.sleep(self._pause_s)
        self._note("done", messages[0])

    async def handle_async(self, messages: list[MessageExt]) -> None:
        self._note("begun", messages[0])
        await asyncio.sleep(self._pause_s)
        self._note("done", messages[0])


def main() -> None:
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    notes = Notes(settings["seen"], settings["pause_s"])
    options = {"consume_from": ConsumeFrom.FIRST, "namesrv": settings["namesrv"]}
    options |= settings["options"]
    kind = settings["kind"]
    if kind == "asyncio":
        waiting = AsyncPushConsumer(settings["group"], **options)
        waiting.subscribe(settings["topic"], "*", notes.handle_async)
        asyncio.run(waiting.run())
    else:
        consumer = PushConsumer(settings["group"], **options)
        consumer.subscribe(settings["topic"], "*", notes.handle)
        if kind == "run":
            consumer.run()
        elif kind == "wait":
            consumer.start()
            assert consumer.wait()
        else:
            with consumer:
                time.sleep(3600)
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    main()
