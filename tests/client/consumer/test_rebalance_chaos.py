"""Members and brokers die and come back at random: no key is ever out of order, nothing is lost."""

import random
import time

import pytest

from client.consumer_group import QUEUES, Source, audit
from client.short_delay_cluster import until

STEPS = ("kill a member", "stop a member", "join", "join", "kill the broker")
THREADS = 20
FORGOTTEN_S = 0.5  # a tenth of a second on a machine with nothing else to do


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", ["queue", "key"])
def test_order_is_kept_when_any_process_dies(
    own_cluster, make_topic, tmp_path, members, order, seed
):
    dice, topic = random.Random(seed), make_topic(own_cluster, QUEUES)
    settings = {
        "namesrv": own_cluster.namesrv,
        "topic": topic,
        "group": "survivors",
        "order": order,
    }
    everyone, alive = [], []

    def join():
        """Begin a member on one of two disks, so that some come back to what they know."""
        disk = {"state_dir": str(tmp_path / f"disk-{len(everyone) % 2}"), "fails": 0.1}
        everyone.append(members(**settings, **(disk if order == "key" else {})))
        alive.append(everyone[-1])

    source = Source(own_cluster, topic)
    source.start()
    try:
        join()
        for _ in range(20):
            time.sleep(dice.uniform(0.3, 2.5))
            step = dice.choice(STEPS)
            if step == "join" and len(alive) < 4:
                join()
            elif step == "kill the broker":
                own_cluster.kill()
                time.sleep(dice.uniform(0, 1))
                own_cluster.restart()
            elif len(alive) > 1:
                leaver = alive.pop(dice.randrange(len(alive)))
                leaver.kill() if step == "kill a member" else leaver.stop()
        count = source.end()
        until(lambda: audit(everyone)[0] == count, 60)
    finally:
        source.end()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_member_by_key_killed_and_started_again_repeats_what_it_had_in_hand_only(
    own_cluster, make_topic, tmp_path, members
):
    topic = make_topic(own_cluster, 2)
    settings = {"namesrv": own_cluster.namesrv, "topic": topic, "group": "phoenix", "order": "key"}
    settings |= {"state_dir": str(tmp_path / "disk"), "pause_s": 0.002}
    lives = [members(**settings)]
    source = Source(own_cluster, topic, 0.05)
    source.start()
    try:
        for _ in range(3):
            until(lambda: len(lives[-1].seen) > 200 and lasted_s(lives[-1]) > 3 * FORGOTTEN_S)
            lives[-1].kill()
            lives.append(members(**settings))
        count = source.end()
        until(lambda: audit(lives)[0] == count, 60)
    finally:
        source.end()
    repeats = sum(len(one.seen) for one in lives) - count
    in_hand = sum(done_last(one) + THREADS for one in lives[:-1])
    assert repeats <= in_hand, "more than was in hand at three kills"
    assert in_hand < count / 2, "all that was done counts as in hand"


def lasted_s(life):
    """From the first message that a member has handled to the last."""
    ends = [entry[0] for entry in life.seen]
    return max(ends) - min(ends)


def done_last(life):
    """How many messages a member had done just before it was killed."""
    ends = [entry[0] for entry in life.seen]
    return sum(end > max(ends) - FORGOTTEN_S for end in ends)
