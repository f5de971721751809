"""The fold over a parking queue: what readers know who began at different records."""

from cometmq.model.parking import ParkingRecord, ParkingStep
from cometmq.rules.failures.failure_policy import ParkBounds
from cometmq.rules.failures.parked_keys import ParkedKeys, StoredFacts, Verdict

PLACE = ("t", 0)


def record(step, epoch=1, owner="m", **fields):
    return ParkingRecord(
        step=step, topic="t", queue_id=0, key="a", epoch=epoch, owner=owner, **fields
    )


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


def test_who_begins_at_the_checkpoint_refuses_the_records_of_earlier_owners_as_all_do():
    records = [
        record(ParkingStep.OPEN),
        record(ParkingStep.OPEN, epoch=2, owner="heir"),
        record(ParkingStep.DROP, offset=9),
        record(ParkingStep.PARK, offset=4, order=4),
        record(ParkingStep.OPEN, epoch=3, owner="third"),
    ]
    all_of_them = fold(records)
    assert all_of_them.needed_from(5) == 1, "the DROP lies at 2, and the OPEN at 1 refused a PARK"
    for first in (0, 1):
        assert [*fold(records, first).messages()] == []
    assert [*fold(records, first=2).messages()] != [], "without that OPEN it counts"


def test_what_is_done_counts_as_done_until_an_open_lies_behind_it():
    records = [
        record(ParkingStep.OPEN),
        record(ParkingStep.PARK, offset=3, order=3, has_failed=True),
        record(ParkingStep.DONE, offset=3),
        record(ParkingStep.OPEN, epoch=2, from_offset=3),
    ]
    keys = fold(records)
    assert keys.judge(PLACE, "a", 3, ParkBounds(), 0) is Verdict.SKIP
    assert keys.records_in_force(PLACE, 10) == 8
    keys.apply(9, record(ParkingStep.OPEN, epoch=3, from_offset=4))
    assert keys.records_in_force(PLACE, 10) == 1
    assert keys.needed_from(10) == 9
