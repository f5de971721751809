"""The parking queues that an admin has read, so that its next call about them only reads on.

Java: none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from cometmq.client.parking.parking_log import PARKED, ParkingLog
from cometmq.client.producer.producer_options import ProducerOptions
from cometmq.client.producer.retrying_sender import RetryingSender
from cometmq.model.group import INNER_PRODUCER_GROUP

if TYPE_CHECKING:
    from cometmq.client.session.client_session import ClientSession

LOGS_MAX = 64


class RecentParkingLogs:
    """Keeps those asked for last. Belongs to its session's loop."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self._logs: OrderedDict[tuple[str, str, int], ParkingLog] = OrderedDict()

    def log_of(self, group: str, broker_name: str, queue_id: int = PARKED) -> ParkingLog:
        """The parking queue of a group at a broker, read as far as an earlier call has."""
        place = (group, broker_name, queue_id)
        found = self._logs.pop(place, None)
        if found is None:
            sender = RetryingSender(self.session, ProducerOptions(group=INNER_PRODUCER_GROUP))
            found = ParkingLog(self.session, group, broker_name, sender, queue_id)
        self._logs[place] = found
        while len(self._logs) > LOGS_MAX:
            self._logs.popitem(last=False)
        return found
