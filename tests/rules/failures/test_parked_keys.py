"""The fold over a parking queue: what readers know who began at different records."""

from cometmq.model.parking import ParkingRecord, ParkingStep
from cometmq.rules.failures.failure_policy import ParkBounds
from cometmq.rules.failures.parked_keys import ParkedKeys, StoredFacts, Verdict

PLACE = ("t", 0)


def record(step, **fields):
    return ParkingRecord(step=step, topic="t", queue_id=0, key="a", epoch=1, owner="m", **fields)


def fold(records, first=0):
    keys = ParkedKeys()
    for position, one in enumerate(records):
        if position >= first:
            keys.apply(position, one, StoredFacts())
    return keys


def test_a_dropped_message_is_done_also_for_who_reads_from_behind_its_parking():
    records = [
        record(ParkingStep.PARK, offset=8, order=8, has_failed=True),
        record(ParkingStep.OPEN, from_offset=0),
        record(ParkingStep.DROP, offset=8),
        record(ParkingStep.DONE, offset=8, gate=60),
    ]
    for first in (0, 1):
        keys = fold(records, first)
        assert keys.is_parked(PLACE, 8)
        verdict = keys.judge(PLACE, "a", 60, ParkBounds(), 0, (8, 8))
        assert verdict is Verdict.SKIP, "a copy whose original was dropped before is not handled"
