"""The audit: what it lets pass, what it counts, and what it must never miss."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cometmq.demo.flights.checks.observations import (
    RECORD,
    Observation,
    ObservationFile,
    count,
    ordered_by_time,
    packed,
)
from cometmq.demo.flights.checks.order_audit import OrderAudit, percentile
from cometmq.demo.flights.events import ARRIVED, CANCELLED, DEPARTED, SCHEDULED

MS = 1_000_000


def seen(
    at: int,
    sequence: int,
    kind: int = SCHEDULED,
    *,
    key: bytes = b"N1",
    flight: bytes | None = None,
    took: int = 1,
    refused: int = 0,
    queue: int = 0,
) -> Observation:
    flight = flight or b"F%d" % sequence
    return Observation(at, took, 5, sequence, sequence, queue, kind, refused, key, flight)


def audited(*observations: Observation | tuple[int, Observation]):
    pairs = [one if isinstance(one[1], tuple) else (0, one) for one in observations]
    return OrderAudit().feed(pairs)


def test_numbers_in_turn_are_no_violation():
    result = audited(*(seen(10 * n, n) for n in range(1, 200)))
    assert (result.unique, result.violations, result.repeats) == (199, 0, 0)
    assert result.by_kind == {"SCHEDULED": 199}


def test_a_number_left_out_is_a_violation_and_so_is_its_late_arrival():
    result = audited(seen(10, 1), seen(20, 3), seen(30, 2), seen(40, 4))
    assert result.out_of_turn == 2
    assert result.unique == 4
    assert result.examples[0] == "N1 number 3 (SCHEDULED of F3) came after number 1"


def test_keys_do_not_disturb_each_other():
    result = audited(
        seen(10, 1, key=b"A"), seen(20, 1, key=b"B"), seen(30, 2, key=b"B"), seen(40, 2, key=b"A")
    )
    assert result.violations == 0


def test_a_message_seen_again_is_a_repeat_and_no_violation():
    result = audited((0, seen(10, 1)), (0, seen(20, 2)), (1, seen(30, 2)), (1, seen(40, 3)))
    assert (result.unique, result.repeats, result.violations) == (3, 1, 0)
    assert result.hand_overs == 1
    assert result.by_process == {0: 2, 1: 1}


def test_a_refused_message_tried_again_is_an_attempt_and_counts_once():
    again = [seen(at, 1, refused=1) for at in (10, 20, 30)]
    result = audited(*again, seen(40, 2))
    assert (result.unique, result.refused, result.attempts, result.repeats) == (2, 1, 2, 0)
    assert result.violations == 0


def test_a_refused_message_that_is_handled_later_is_repaired_and_later_ones_wait_for_it():
    refused = seen(10, 1, refused=1)
    result = audited(refused, seen(20, 1), seen(30, 2), seen(40, 2))
    assert (result.refused, result.repaired, result.repeats) == (1, 1, 1)
    assert (result.before_repair, result.violations) == (0, 0)
    result = audited(refused, seen(20, 2), seen(30, 1))
    assert (result.repaired, result.before_repair) == (1, 1)


def test_two_handlers_at_once_on_one_key_are_an_overlap():
    result = audited((0, seen(10, 1, took=50)), (1, seen(20, 2)))
    assert result.overlaps == 1
    result = audited((0, seen(10, 1, took=10)), (1, seen(20, 2)))
    assert result.overlaps == 0


def test_an_event_before_the_one_that_must_precede_it_is_a_violation():
    early = audited(seen(10, 1, ARRIVED, flight=b"F"), seen(20, 2, DEPARTED, flight=b"F"))
    assert early.too_early == 2
    fine = audited(
        seen(10, 1, SCHEDULED, flight=b"F"),
        seen(20, 2, SCHEDULED, flight=b"G"),
        seen(30, 3, CANCELLED, flight=b"G"),
        seen(40, 4, DEPARTED, flight=b"F"),
        seen(50, 5, ARRIVED, flight=b"F"),
    )
    assert fine.violations == 0


@given(st.lists(st.integers(0, 5), min_size=2, max_size=60), st.randoms(use_true_random=False))
def test_any_order_but_the_right_one_is_found(keys, rng):
    last: dict[int, int] = {}
    stream = []
    for key in keys:
        last[key] = last.get(key, 0) + 1
        stream.append((b"%d" % key, last[key]))
    shuffled = stream[:]
    rng.shuffle(shuffled)
    result = audited(
        *(
            seen(10 * at, n, key=key, flight=b"%b-%d" % (key, n))
            for at, (key, n) in enumerate(shuffled, 1)
        )
    )
    in_turn = all(
        [n for k, n in shuffled if k == key] == [n for k, n in stream if k == key]
        for key in {k for k, _ in stream}
    )
    assert (result.violations == 0) == in_turn
    assert result.unique == len(stream)


def test_records_of_all_processes_are_merged_by_the_time_handling_began(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]
    rng = random.Random(7)
    times = rng.sample(range(1, 10**12), 300)
    for path, part in zip(paths[:2], (times[:150], times[150:]), strict=True):
        journal = ObservationFile(path)
        for at in range(0, 150, 10):
            journal.append([seen(one, 1) for one in part[at : at + 10]])
        journal.close()
    paths[2].touch()
    merged = list(ordered_by_time(paths))
    assert [one.begin_ns for _, one in merged] == sorted(times)
    assert {index for index, one in merged if one.begin_ns in set(times[:150])} == {0}


def test_a_record_torn_by_a_kill_is_not_read(tmp_path):
    path = tmp_path / "torn"
    path.write_bytes(packed(seen(10, 1)) + packed(seen(20, 2))[:-1])
    assert count(path) == 1
    assert [one.begin_ns for _, one in ordered_by_time([path])] == [10]
    assert count(tmp_path / "missing") == 0


def test_figures_too_large_for_a_record_are_written_as_its_largest():
    raw = packed(seen(1, 1, took=10**12)._replace(latency_ms=10**15))
    one = Observation._make(RECORD.unpack(raw))
    assert one.took_ns == (1 << 32) - 1
    assert one.latency_ms == (1 << 31) - 1


def test_percentiles_are_values_that_occur():
    assert percentile([], 0.5) == 0
    assert percentile([7], 0.99) == 7
    assert percentile(list(range(100)), 0.5) == 50
    assert percentile(list(range(100)), 0.99) == 99
