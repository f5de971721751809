"""The unmodified Java client consumes from our broker by SQL92."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cometmq import Message, Producer
from cometmq.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.jvm import JavaHost

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
SAID = ("GOT", "LEFT", "REFUSED")
Consume = Callable[..., list[str]]


@pytest.fixture
def consume(java: JavaHost) -> Consume:
    def run(*arguments: object) -> list[str]:
        return sorted(line for line in java.run("SqlConsume", *arguments) if line.startswith(SAID))

    return run


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(tmp_path_factory.mktemp("store")) as cluster:
        with Producer("numbers", namesrv=cluster.namesrv) as producer:
            for number in range(20):
                pairs = {"n": str(number), "kind": "even" if number % 2 == 0 else "odd"}
                producer.send(Message("Numbers", f"{number:02}".encode(), properties=pairs))
        yield cluster.namesrv


def test_only_what_the_condition_wants_comes(namesrv: str, consume: Consume) -> None:
    wanted = "n BETWEEN 5 AND 15 AND (kind = 'even' OR n > 14) AND missing IS NULL"
    said = consume(namesrv, "Numbers", "by-sql", 6, wanted)
    assert said == [*(f"GOT {number:02}" for number in (6, 8, 10, 12, 14, 15)), "LEFT 0"]


def test_a_condition_that_is_none_ends_the_start(namesrv: str, consume: Consume) -> None:
    (said,) = consume(namesrv, "Numbers", "by-mistake", 1, "n = = 5")
    assert said.startswith("REFUSED")
