"""Up to where two logs are one history, and which master is the newer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.replication import FIRST_EPOCH, Epoch
from cometmq.rules.epochs import common_end, first_unknown, id_to_take, is_newer, within

SECOND = Epoch(2, 100, "a", 1)
OTHER_SECOND = Epoch(2, 80, "b", 2)
THIRD = Epoch(3, 150, "c", 1)


def test_histories_part_where_the_earlier_of_the_two_next_epochs_begins() -> None:
    first = (FIRST_EPOCH,)
    assert common_end(first, 130, (FIRST_EPOCH, SECOND), 200) == 100
    assert common_end(first, 90, (FIRST_EPOCH, SECOND), 200) == 90
    assert common_end((FIRST_EPOCH, SECOND), 200, (FIRST_EPOCH, SECOND, THIRD), 300) == 150
    assert common_end((FIRST_EPOCH, SECOND), 200, (FIRST_EPOCH, OTHER_SECOND), 300) == 80
    assert common_end((FIRST_EPOCH, SECOND), 120, (FIRST_EPOCH, SECOND), 120) == 120


def test_of_two_epochs_with_one_number_all_agree_which_is_the_newer() -> None:
    mine, theirs = (FIRST_EPOCH, SECOND), (FIRST_EPOCH, OTHER_SECOND)
    assert is_newer(theirs, mine)
    assert not is_newer(mine, theirs)
    assert not is_newer(mine, mine)
    assert is_newer((*mine, THIRD), theirs)
    assert first_unknown(mine, theirs) == OTHER_SECOND
    assert first_unknown((FIRST_EPOCH,), (*mine, THIRD)) == SECOND


def test_a_former_master_takes_an_id_that_is_not_the_masters() -> None:
    again = Epoch(3, 90, "d", 0)  # of a broker that was the master already
    assert id_to_take((FIRST_EPOCH,), (FIRST_EPOCH, OTHER_SECOND, THIRD)) == 2
    assert id_to_take((FIRST_EPOCH, OTHER_SECOND), (FIRST_EPOCH, again)) == 2
    assert id_to_take((FIRST_EPOCH,), (FIRST_EPOCH, again)) == 1


def test_an_epoch_begins_at_the_end_of_a_log_that_lost_its_beginning() -> None:
    assert within((FIRST_EPOCH, SECOND, THIRD), 120) == (
        FIRST_EPOCH,
        SECOND,
        THIRD._replace(start=120),
    )
    assert common_end(within((FIRST_EPOCH, SECOND), 90), 95, (FIRST_EPOCH, SECOND), 200) == 90


@given(st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 40), max_size=6))
def test_what_two_brokers_wrote_alone_is_never_called_common(
    mine: list[int], theirs: list[int]
) -> None:
    """Both begin as one; then each writes bytes of its own, in epochs of its own."""
    shared = 50

    def history(ids: str, steps: list[int]) -> tuple[tuple[Epoch, ...], int]:
        epochs, end = [FIRST_EPOCH], shared
        for number, step in enumerate(steps, 2):
            epochs.append(Epoch(number, end, f"{ids}{number}", 1))
            end += step
        return tuple(epochs), end

    (a, a_end), (b, b_end) = history("a", mine), history("b", theirs)
    if mine or theirs:
        assert common_end(a, a_end, b, b_end) == shared == common_end(b, b_end, a, a_end)
