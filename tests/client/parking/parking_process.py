"""A member that parks, in a process of its own, and may kill itself at a step of parking.

Called with one JSON argument; writes each body that its handler was done with; ends when its
standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cometmq import ConsumeFrom, OnFailure, PushConsumer
from cometmq.client.parking.parking_log import ParkingLog
from cometmq.client.parking.queue_parking import QueueParking
from cometmq.model.parking import RECORD_PROPERTY


def die_at(step: str) -> None:
    """Kill this process once a message was stored in the parking topic, or counts as parked."""
    append, are_parked = ParkingLog.append, QueueParking._are_parked

    async def append_and_die(log: ParkingLog, prepared: Any) -> int:
        position = await append(log, prepared)
        if f'{RECORD_PROPERTY}\x01{{"step":"{step}"' in prepared.properties:
            os.kill(os.getpid(), signal.SIGKILL)
        return position

    def note_and_die(parking: QueueParking, messages: Any) -> bool:
        if are_parked(parking, messages):
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    if step == "counts":
        QueueParking._are_parked = note_and_die  # type: ignore[method-assign,assignment]
    else:
        ParkingLog.append = append_and_die  # type: ignore[method-assign]


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings.get("die_at"):
        die_at(settings["die_at"])
    with Path(settings["seen"]).open("a", buffering=1) as seen:

        def note(messages: Any) -> None:
            body = messages[0].body.decode()
            if body in settings["bad"]:
                raise ValueError("no time in it")
            seen.write(body + "\n")

        consumer = PushConsumer(
            settings["group"],
            namesrv=settings["namesrv"],
            order="key",
            consume_from=ConsumeFrom.FIRST,
            state_dir=settings["state_dir"],
            lock_renew_s=0.5,
            lock_valid_s=2.0,
            rebalance_s=1.0,
        )
        consumer.subscribe(settings["topic"], "*", note, on_failure=OnFailure.park())
        with consumer:
            sys.stdin.read()


if __name__ == "__main__":
    main()
