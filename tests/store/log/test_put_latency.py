"""How long puts took: by class and as percentiles, of the last minute that is over."""

import asyncio
import errno
import math
import time

from hypothesis import example, given
from hypothesis import strategies as st

from cometmq.store.log.put_latency import CLASSES_S, PutLatencies
from cometmq.store.message_store import MessageDraft, PutStatus

START_S = 5_000.0


def test_the_last_minute_that_is_over_is_reported_and_before_it_the_first_as_far_as_it_is():
    times = PutLatencies()
    assert sum(times.classes(START_S)) == 0
    assert times.percentile(0.99, START_S) == 0.0
    times.add(5, START_S - 0.02, START_S)
    assert times.classes(START_S + 59)[2] == 5, "from 10 to 50 ms"
    times.add(1, START_S + 58.5, START_S + 59)
    assert times.classes(START_S + 61) == [0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    times.add(7, START_S + 61, START_S + 61)
    assert sum(times.classes(START_S + 119)) == 6, "the second minute is not over yet"
    assert times.classes(START_S + 121)[0] == 7
    assert sum(times.classes(START_S + 181)) == 0, "nothing was put within the third"
    assert 0.49 < times.longest_s < 0.51, "of the whole life"


def test_minutes_without_puts_are_not_taken_for_the_last():
    times = PutLatencies()
    times.add(3, START_S, START_S)
    times.add(2, START_S + 300, START_S + 300)
    assert sum(times.classes(START_S + 301)) == 0
    assert times.classes(START_S + 361)[0] == 2


@given(st.integers(1, 10**9), st.integers(0, 60), st.booleans())
@example(18_639_833, 30, False)
def test_a_minute_whose_end_rounds_to_now_is_over(begun_s_by_10_000, minutes, is_just_before):
    begun_s = begun_s_by_10_000 / 10_000
    now_s = begun_s + 60.0 + 60.0 * minutes
    times = PutLatencies()
    times.add(3, begun_s, begun_s)
    times.add(2, begun_s, math.nextafter(now_s, 0) if is_just_before else now_s)
    assert sum(times.classes(now_s)) in (0, 2, 3, 5)
    assert sum(times.histogram.counts) == 5


@given(st.lists(st.floats(0, 9.9), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_percentiles_are_at_most_a_fifth_off(spent, share):
    times = PutLatencies()
    for each in spent:
        times.add(1, 0.0, each)  # within the first minute
    exact = sorted(spent)[max(0, -int(-share * len(spent) // 1) - 1)]
    reported = times.percentile(share, 10.0)
    assert exact / 1.21 - 0.000_021 <= reported <= exact * 1.21 + 0.000_021
    classes = times.classes(10.0)
    assert classes[0] == sum(each < CLASSES_S[0] for each in spent)
    assert sum(classes[:7]) == sum(each < CLASSES_S[6] for each in spent)
    assert sum(classes) == len(spent)


def test_all_puts_of_a_loop_iteration_took_as_long_as_the_first_of_them(run_scenario):
    async def scenario(harness):
        store = harness.open()
        for _ in range(3):
            store.put(MessageDraft("T", 0, b"x"))
        time.sleep(0.02)  # the loop iteration takes so long
        assert await harness.wait_until_durable() is PutStatus.PUT_OK
        now_s = asyncio.get_running_loop().time()
        assert sum(store.put_times.classes(now_s)[2:]) == 3
        assert store.put_times.longest_s >= 0.02
        assert store.put_times.percentile(0.5, now_s) >= 0.016
        await harness.wait_until_durable()
        assert sum(store.put_times.classes(now_s)) == 3, "to ask is no put"

    run_scenario(scenario)


def test_what_was_refused_or_lost_has_failed(run_scenario, disk):
    async def scenario(harness):
        store = harness.open()
        await harness.put(b"kept")
        assert store.put_times.failed == 0
        assert store.put(MessageDraft("x" * 300, 0, b"x")).status is PutStatus.MESSAGE_ILLEGAL
        disk.room = 0
        store.put(MessageDraft("T", 0, b"lost"))
        store.put(MessageDraft("T", 0, b"lost"))
        assert await harness.wait_until_durable() is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.put_times.failed == 3
        assert sum(store.put_times.classes(asyncio.get_running_loop().time())) == 1

    run_scenario(scenario)


def test_what_a_failed_flush_took_has_failed(run_scenario, disk):
    async def scenario(harness):
        store = harness.open(flush_disk_type="SYNC_FLUSH")
        disk.sync_error = OSError(errno.EIO, "broken disk")
        store.put(MessageDraft("T", 0, b"lost"))
        assert await harness.wait_until_durable() is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.put_times.failed == 1

    run_scenario(scenario)
