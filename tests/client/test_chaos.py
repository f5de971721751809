"""Members and brokers die and come back at random: no key is ever out of order, nothing is lost."""

import random
import time

import pytest

from client.served import until
from client.test_groups import QUEUES, Member, Source, audit

STEPS = ("kill a member", "stop a member", "join", "join", "kill the broker")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
def test_order_is_kept_whoever_dies(mortal, make_topic, tmp_path, seed):
    dice, topic = random.Random(seed), make_topic(mortal, QUEUES)
    told = {"namesrv": mortal.namesrv, "topic": topic, "group": "survivors"}
    everyone, alive = [], []

    def join():
        everyone.append(Member(tmp_path / f"seen-{len(everyone)}", **told))
        alive.append(everyone[-1])

    source = Source(mortal, topic)
    source.start()
    try:
        join()
        for _ in range(20):
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
