"""What a parking queue says became of each message: by which command it left, and where to."""

import pytest

from cometmq.model.parking import ParkingRecord, ParkingStep
from cometmq.rules.failures.parked_history import ParkedHistory, ParkedState
from cometmq.rules.failures.parked_keys import StoredFacts

STORED_MS = 1_000
COMMANDS = {
    ParkingStep.RELEASE: ParkedState.RELEASED,
    ParkingStep.REDRIVE: ParkedState.REDRIVEN,
    ParkingStep.DEAD_LETTER: ParkedState.DEAD_LETTER,
}


def record(step, *, epoch=1, **fields):
    written = {"epoch": 0, "owner": ""} if step in COMMANDS else {"epoch": epoch, "owner": "m"}
    return ParkingRecord(step=step, topic="t", queue_id=0, key="a", **written, **fields)


def history(*records):
    """The entries after these records, the first at position 0, each stored a ms after another."""
    found = ParkedHistory()
    for position, one in enumerate(records):
        found.apply(position, one, StoredFacts(stored_ms=STORED_MS + position))
    return list(found.entries())


OPEN = record(ParkingStep.OPEN, from_offset=0)
FAILED = record(ParkingStep.PARK, offset=8, order=8, has_failed=True)
FOLLOWS = record(ParkingStep.PARK, offset=9, order=9)


@pytest.mark.parametrize("step", COMMANDS)
def test_a_message_that_left_by_a_command_shows_it_and_when(step):
    done = record(ParkingStep.DONE, offset=8, command=3)
    first, second = history(OPEN, FAILED, FOLLOWS, record(step, offset=8, to="other"), done)
    assert (first.state, first.left_ms, first.to) == (COMMANDS[step], STORED_MS + 4, "other")
    assert (second.state, second.left_ms, second.message.has_failed) == (
        ParkedState.PARKED,
        0,
        False,
    )


def test_a_message_that_failed_again_is_parked():
    stay = record(ParkingStep.STAY, offset=8, command=2)
    (one,) = history(OPEN, FAILED, record(ParkingStep.RELEASE, offset=8), stay)
    assert (one.state, one.left_ms, one.message.command) == (ParkedState.PARKED, 0, "")


def test_a_key_that_follows_a_command_says_which():
    (one,) = history(OPEN, FAILED, record(ParkingStep.RELEASE, offset=8))
    assert (one.state, one.message.command) == (ParkedState.PARKED, "release")


def test_a_dropped_message_is_dropped():
    (one,) = history(OPEN, FAILED, record(ParkingStep.DROP, offset=8))
    assert (one.state, one.left_ms) == (ParkedState.DROPPED, STORED_MS + 2)


@pytest.mark.parametrize(
    ("gate", "state"), [(-1, ParkedState.DONE), (60, ParkedState.REDRIVEN)], ids=["done", "copy"]
)
def test_without_the_record_of_the_command_only_a_copy_tells_of_it(gate, state):
    (one,) = history(OPEN, FAILED, record(ParkingStep.DONE, offset=8, command=77, gate=gate))
    assert one.state is state


def test_records_of_an_owner_whose_time_is_over_do_not_count():
    later = record(ParkingStep.OPEN, from_offset=0, epoch=2)
    done, late = record(ParkingStep.DONE, offset=8), record(ParkingStep.PARK, offset=9, order=9)
    (one,) = history(OPEN, FAILED, later, done, late)
    assert (one.state, one.message.offset) == (ParkedState.PARKED, 8)
