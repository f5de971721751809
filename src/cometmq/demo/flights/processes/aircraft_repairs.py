"""The operator beside the orderly group: repairs what was parked, and releases the aircraft.

Owns the thread and the counts; leaves the order to the group. Invariant: only a message that the
handler refused gets another body, and its aircraft is released after that.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cometmq.errors import CometError

if TYPE_CHECKING:
    from cometmq import Admin
    from cometmq.model.parking import ParkedMessage

LOOK_S = 0.3
AT_ONCE = 8
"""How many messages are repaired at the same time."""
_STOP_S = 10.0


class AircraftRepairs:
    """Runs in a thread of its own from `start` to `stop`."""

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._ended = threading.Event()
        self._repairers = ThreadPoolExecutor(AT_ONCE, "repairs")
        self._thread = threading.Thread(target=self._run, name="repairs", daemon=True)
        self.aircraft: set[str] = set()
        """The keys that were seen parked."""
        self.messages: set[tuple[int, int]] = set()
        """Queue and offset of each message that was seen parked."""
        self.repaired: set[tuple[int, int]] = set()
        """Those of them that got another body."""
        self.problem = ""
        """Why the last look failed, as while the broker is killed; empty: it did not."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(_STOP_S)
        self._repairers.shutdown(wait=False, cancel_futures=True)

    def look(self) -> int:
        """Repair and release what is parked now; how many messages that were."""
        parked = self._admin.parked(self._group)
        self.aircraft |= {one.key for one in parked}
        self.messages |= {(one.queue_id, one.offset) for one in parked}
        bad = [one for one in parked if one.has_failed and one.repaired_at < 0 and not one.command]
        list(self._repairers.map(self._repair, bad))
        if any(not one.command for one in parked):
            newest_ms = max(one.parked_ms for one in parked)
            self._admin.release_parked(self._group, until_ms=newest_ms, wait_s=0.0)
        return len(parked)

    def _repair(self, parked: ParkedMessage) -> None:
        body = bytes(self._admin.parked_message(self._group, parked).body)
        if self._admin.repair_parked(self._group, parked, with_arrival_time(body)):
            self.repaired.add((parked.queue_id, parked.offset))

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self.look()
                self.problem = ""
            except CometError as error:
                self.problem = str(error)


def with_arrival_time(body: bytes) -> bytes:
    """The body of an ARRIVED with an arrival time: the hour and minute (UTC) of the event."""
    fields = json.loads(body)
    hour, minute = fields["time"][11:16].split(":")
    fields["arr_time"] = int(hour + minute)
    return json.dumps(fields, separators=(",", ":")).encode()
