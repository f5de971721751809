"""By key, members and brokers die and come back: no key is ever out of order, nothing is lost."""

import random
import time

import pytest

from client.served import until
from client.test_chaos import STEPS
from client.test_groups import QUEUES, Member, Source, audit


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_keys_is_kept_whoever_dies(mortal, make_topic, tmp_path, seed):
    dice, topic = random.Random(seed), make_topic(mortal, QUEUES)
    told = {"namesrv": mortal.namesrv, "topic": topic, "group": "survivors", "order": "key"}
    everyone, alive = [], []

    def join():
        """Begin a member on one of two disks, so that some come back to what they know."""
        disk = {"state_dir": str(tmp_path / f"disk-{len(everyone) % 2}"), "fails": 0.1}
        everyone.append(Member(tmp_path / f"seen-{len(everyone)}", **told, **disk))
        alive.append(everyone[-1])

    source = Source(mortal, topic)
    source.start()
    try:
        join()
        for _ in range(15):
            time.sleep(dice.uniform(0.3, 2.5))
            step = dice.choice(STEPS)
            if step == "join" and len(alive) < 4:
                join()
            elif step == "kill the broker":
                mortal.kill()
                time.sleep(dice.uniform(0, 1))
                mortal.restart()
            elif len(alive) > 1:
                leaver = alive.pop(dice.randrange(len(alive)))
                leaver.kill() if step == "kill a member" else leaver.stop()
        count = source.end()
        until(lambda: audit(everyone)[0] == count, 60)
    finally:
        source.end()
        for one in alive:
            one.kill()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_member_killed_and_started_again_repeats_what_it_had_in_hand_only(
    mortal, make_topic, tmp_path
):
    topic = make_topic(mortal, 2)
    told = {"namesrv": mortal.namesrv, "topic": topic, "group": "phoenix", "order": "key"}
    told |= {"state_dir": str(tmp_path / "disk"), "pause_s": 0.002}
    members = [Member(tmp_path / "seen-0", **told)]
    source = Source(mortal, topic, 0.05)
    source.start()
    try:
        for life in range(1, 4):
            until(lambda: len(members[-1].seen) > 200)
            members[-1].kill()
            members.append(Member(tmp_path / f"seen-{life}", **told))
        count = source.end()
        until(lambda: audit(members)[0] == count, 60)
    finally:
        source.end()
        members[-1].kill()
    repeats = sum(len(one.seen) for one in members) - count
    in_hand = 20 * 6  # of each thread a hundredth of a second at 2 ms a message, and one more
    assert repeats <= 3 * in_hand, "more than was in hand at three kills"
