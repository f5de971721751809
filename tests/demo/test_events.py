"""The input: exact counts, exact times, exact order."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from cometmq.demo.flights import event_files
from cometmq.demo.flights.dataset import Flight, flights_of
from cometmq.demo.flights.events import (
    ARRIVED,
    CANCELLED,
    DEPARTED,
    KINDS,
    SCHEDULED,
    WHOLE_YEAR,
    events_of,
    events_of_flight,
    first_flights,
    require_whole,
    sharding_key_of,
    totals_of,
    utc,
)
from cometmq.errors import SettingsError


def row(text: str) -> list[str]:
    return text.split()


HEADER = row(
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier "
    "flight tailnum origin dest air_time distance hour minute time_hour"
)
FIRST_ROW = row(
    "2013 1 1 517 515 2 830 819 11 UA 1545 N14228 EWR IAH 227 1400 5 15 2013-01-01T10:00:00Z"
)
JULY_ROW = row("2013 7 4 NA 2359 NA NA 350 NA B6 745 NA JFK PSE NA 1617 23 59 2013-07-05T03:00:00Z")


def flight(**changes: object) -> Flight:
    base = Flight("XX1-JFK-20130101", "N1", "XX", "JFK", "BOS", 1_357_034_400, 2, 40, 715, 1)
    return base._replace(**changes)


def test_the_whole_year_has_the_counts_that_every_stage_is_compared_with(whole_year):
    assert totals_of(whole_year) == WHOLE_YEAR
    assert WHOLE_YEAR.messages == 1_002_073
    assert WHOLE_YEAR.as_dict() == {
        "scheduled": 336_776,
        "cancelled": 8_255,
        "departed": 328_521,
        "arrived": 328_521,
        "without_arrival_time": 458,
        "flights_without_tail": 2_512,
        "sharding_keys": 6_555,
        "messages": 1_002_073,
    }
    assert len({one.flight_id for one in whole_year}) == 336_776


def test_an_input_that_is_not_the_package_as_published_is_refused():
    require_whole(WHOLE_YEAR)
    with pytest.raises(SettingsError, match="8,254 cancelled, expected 8,255"):
        require_whole(replace(WHOLE_YEAR, cancelled=8_254))


def test_the_events_of_the_whole_year_are_numbered_without_gap_and_in_the_order_of_their_lives(
    whole_year,
):
    kinds: Counter[int] = Counter()
    last: dict[str, int] = {}
    known: dict[str, list[int]] = {}
    refused = 0
    for kind, flight_id, key, sequence, body in events_of(whole_year):
        kinds[kind] += 1
        assert sequence == last.get(key, 0) + 1
        last[key] = sequence
        known.setdefault(flight_id, []).append(kind)
        refused += kind == ARRIVED and '"arr_time"' not in body
    assert [kinds[kind] for kind in range(4)] == [336_776, 8_255, 328_521, 328_521]
    assert refused == 458
    assert len(last) == WHOLE_YEAR.sharding_keys
    lives = Counter(tuple(life) for life in known.values())
    assert lives == {(SCHEDULED, CANCELLED): 8_255, (SCHEDULED, DEPARTED, ARRIVED): 328_521}


def test_the_events_of_a_month_come_in_the_order_of_their_times(whole_year):
    month = [one for one in whole_year if one.flight_id.endswith(tuple("0123456789"))][:20_000]
    times = [json.loads(event.body)["time"] for event in events_of(month)]
    assert times == sorted(times)
    assert len(times) == totals_of(month).messages


def test_a_row_of_the_file_becomes_a_flight_with_its_schedule_in_utc():
    first, july = flights_of([HEADER, FIRST_ROW, JULY_ROW])
    assert first == Flight(
        "UA1545-EWR-20130101", "N14228", "UA", "EWR", "IAH", 1_357_035_300, 2, 227, 830, 11
    )
    assert utc(first.scheduled_s) == "2013-01-01T10:15:00Z"
    assert utc(july.scheduled_s) == "2013-07-05T03:59:00Z"
    assert july.tail is None
    assert july.dep_delay_min is None
    assert sharding_key_of(july) == "B6745-JFK-20130704"


def test_time_hour_is_utc_because_it_differs_from_the_local_hour_by_new_yorks_offset():
    local, hour_utc = int(FIRST_ROW[16]), int(FIRST_ROW[18][11:13])
    assert hour_utc - local == 5
    local, hour_utc = int(JULY_ROW[16]), int(JULY_ROW[18][11:13])
    assert (hour_utc - local) % 24 == 4


@pytest.mark.parametrize(
    ("changes", "life"),
    [
        ({}, [(-86_400, SCHEDULED), (120, DEPARTED), (120 + 2400, ARRIVED)]),
        ({"dep_delay_min": None}, [(-86_400, SCHEDULED), (0, CANCELLED)]),
        (
            {"air_time_min": None},
            [(-86_400, SCHEDULED), (120, DEPARTED), (120 + 43_200, ARRIVED)],
        ),
        ({"dep_delay_min": -7}, [(-86_400, SCHEDULED), (-420, DEPARTED), (1980, ARRIVED)]),
    ],
)
def test_a_flights_life_follows_from_its_delay_and_its_time_in_the_air(changes, life):
    one = flight(**changes)
    assert [(at - one.scheduled_s, kind) for at, kind in events_of_flight(one)] == life


def test_equal_times_keep_a_flights_own_events_in_order():
    instant = flight(dep_delay_min=-1440, air_time_min=0)
    found = [event.kind for event in events_of([instant])]
    assert found == [SCHEDULED, DEPARTED, ARRIVED]


def test_a_body_is_json_that_leaves_out_what_the_record_does_not_have():
    *_, arrived = events_of([flight(arr_time=None, arr_delay_min=None, tail=None)])
    assert json.loads(arrived.body) == {
        "event": "ARRIVED",
        "flight": "XX1-JFK-20130101",
        "time": "2013-01-01T10:42:00Z",
        "scheduled": "2013-01-01T10:00:00Z",
        "tail": None,
        "carrier": "XX",
        "origin": "JFK",
        "dest": "BOS",
        "air_time": 40,
    }


def test_the_first_messages_are_those_of_the_earliest_flights(whole_year):
    few = first_flights(whole_year, 5000)
    totals = totals_of(few)
    assert 5000 <= totals.messages < 5003
    assert max(one.scheduled_s for one in few) <= 1_357_300_000
    assert first_flights(whole_year, 0) == []


def test_more_flights_than_fit_into_the_packed_order_are_refused():
    with pytest.raises(ValueError, match="1048577 flights are more"):
        next(events_of([flight()] * ((1 << 20) + 1)))


def test_a_key_belongs_to_one_producer_and_its_file_keeps_the_order(tmp_path, whole_year):
    events = list(events_of(first_flights(whole_year, 3000)))
    paths = [tmp_path / f"{index}.events" for index in range(3)]
    counts = event_files.write(events, paths)
    read = [list(event_files.read(path)) for path in paths]
    assert [len(part) for part in read] == counts
    assert all(counts)
    keys = [{event.sharding_key for event in part} for part in read]
    assert not keys[0] & keys[1] | keys[1] & keys[2] | keys[0] & keys[2]
    for index, part in enumerate(read):
        assert part == [
            one for one in events if event_files.producer_of(one.sharding_key, 3) == index
        ]


def test_totals_tell_the_kinds_by_name():
    assert KINDS == ("SCHEDULED", "CANCELLED", "DEPARTED", "ARRIVED")
    assert replace(WHOLE_YEAR, cancelled=0).messages == 1_002_073 - 8_255
