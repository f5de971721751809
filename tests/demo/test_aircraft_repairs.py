"""The operator of the demo: what it repairs, and when it releases."""

import json
from dataclasses import replace
from types import SimpleNamespace

from cometmq.demo.flights.processes.aircraft_repairs import AircraftRepairs, with_arrival_time
from cometmq.model.parking import ParkedMessage

BODY = b'{"event":"ARRIVED","time":"2013-01-01T09:07:00Z"}'


def parked(offset: int, **changes: object) -> ParkedMessage:
    one = ParkedMessage(
        topic="flights", queue_id=3, offset=offset, order=offset, key="N1", position=offset,
        parked_ms=1_000 + offset,
    )  # fmt: skip
    return replace(one, **changes)


class Desk:
    """An admin that notes what it is asked to do."""

    def __init__(self, *messages: ParkedMessage):
        self.messages, self.done = list(messages), []

    def parked(self, group):
        assert group == "followers"
        return self.messages

    def parked_message(self, _group, _parked):
        return SimpleNamespace(body=BODY)

    def repair_parked(self, _group, one, body):
        self.done.append(("repair", one.offset, json.loads(body)["arr_time"]))
        return True

    def release_parked(self, _group, *, until_ms, wait_s):
        assert wait_s == 0
        self.done.append(("release", until_ms))


def test_refused_messages_are_repaired_before_all_that_was_seen_is_released():
    desk = Desk(parked(1, has_failed=True), parked(2), parked(3))
    repairs = AircraftRepairs(desk, "followers")
    assert repairs.look() == 3
    assert desk.done == [("repair", 1, 907), ("release", 1_003)]
    assert (repairs.aircraft, len(repairs.messages), repairs.repaired) == ({"N1"}, 3, {(3, 1)})


def test_what_is_repaired_or_on_its_way_is_left_alone():
    desk = Desk(
        parked(1, has_failed=True, repaired_at=9), parked(2, has_failed=True, command="release")
    )
    AircraftRepairs(desk, "followers").look()
    assert desk.done == [("release", 1_002)]
    AircraftRepairs(Desk(parked(2, command="release")), "followers").look()


def test_nothing_is_released_where_nothing_is_parked():
    desk = Desk()
    assert AircraftRepairs(desk, "followers").look() == 0
    assert desk.done == []


def test_a_repaired_body_has_the_time_of_its_event():
    assert json.loads(with_arrival_time(BODY)) == json.loads(BODY) | {"arr_time": 907}
