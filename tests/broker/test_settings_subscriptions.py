"""A live setting that changes reaches whoever works with it: nobody keeps the old one.

Without a list of who does: all that a running broker holds is searched for old settings. Whoever
works with a live setting and is not subscribed fails these tests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.harness import SMALL_STORE, new_broker, run, running
from cometmq.broker import broker_state as state
from cometmq.broker.app import Broker
from cometmq.broker.broker_state import BrokerEnvironment
from cometmq.settings.broker import BrokerSettings
from cometmq.settings.live_settings import LiveSettings
from cometmq.settings.store import StoreSettings
from cometmq.wire.codes import RequestCode
from settings.distinct_settings import (
    as_request,
    live_fields,
    read_by,
    reads_live,
    with_odd_numbers,
)
from settings.reachable_objects import reachable

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

KEPT = (BrokerSettings, StoreSettings, BrokerEnvironment)
"""Settings are looked at whole; the environment is what the broker was started with."""


def as_started(start: int, **values: object) -> tuple[BrokerSettings, StoreSettings]:
    percents = {"disk_used_percent_max": 61, "disk_clean_percent": 62, "disk_full_percent": 63}
    plain = {"namesrv_addr": "", "broker_permission": 6, "delete_when": "04", **percents}
    mine = BrokerSettings(store_path_root_dir="/store", broker_name="b0", listen_port=0)
    return (
        with_odd_numbers(mine, {**plain, **values}, start),
        with_odd_numbers(SMALL_STORE, {**plain, **values}, start),
    )


def numbers_of(*settings: object) -> set[object]:
    values = {getattr(each, field.name) for each in settings for field in live_fields(type(each))}
    return {value for value in values if isinstance(value, int) and value > 1_000}


def test_nothing_keeps_old_settings_after_a_change() -> None:
    async def scenario() -> None:
        before, store_before = as_started(1_200_347)
        fields = {name: getattr(before, name) for name in before.__slots__}
        del fields["store_path_root_dir"]
        async with running(store_before, **fields) as harness:
            after, store_after = as_started(
                1_400_347, broker_permission=4, delete_when="05", disk_used_percent_max=64
            )
            after = replace(after, listen_port=harness.broker.port)  # chosen by the system
            client = await harness.client()
            answer = await client.call(
                RequestCode.UPDATE_BROKER_CONFIG, None, as_request(after, store_after).encode()
            )
            assert answer.code == 0, answer
            old = numbers_of(before, store_before)
            assert len(old) > 10, "there is something to be found"
            assert old.isdisjoint(numbers_of(after, store_after))
            stale, fresh = [], set()
            for path, holder, value in reachable(harness.broker, but=KEPT):
                if isinstance(value, BrokerSettings | StoreSettings):
                    if value in (after, store_after):
                        fresh.add(path)
                    elif not isinstance(holder, KEPT) and reads_live(holder, type(value)):
                        stale.append(path)
                elif isinstance(value, int) and value in old:
                    stale.append(f"{path} = {value}")
            assert stale == []
            assert len(fresh) > 5, "the new ones are found"

    run(scenario())


def test_a_live_setting_that_state_is_made_with_is_handed_on_when_it_changes() -> None:
    live = {field.name for field in live_fields(BrokerSettings)}
    at_start = live & read_by(state)
    assert "auto_create_topic_enable" in at_start
    assert at_start - read_by(Broker._adjust) == set()


def adjusters(broker: Broker) -> dict[tuple[int, str], tuple[type, str]]:
    """All that the broker holds and that adjusts to settings, by identity and method."""
    held = [value for _, _, value in reachable(broker, but=KEPT)]
    return {
        (id(each), name): (type(each), name)
        for each in held
        if type(each).__module__.startswith(("cometmq.broker.", "cometmq.store."))
        for name in dir(type(each))
        if name.startswith("adjust")
    }


def test_whatever_has_an_adjust_method_is_subscribed_to_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adjusted: set[tuple[int, str]] = set()

    def noting(adjust: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def noted(self: object, settings: object) -> None:
            adjusted.add((id(self), adjust.__name__))
            adjust(self, settings)

        return noted

    async def scenario() -> None:
        first = new_broker()
        for kind, name in set(adjusters(first).values()):
            monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
        first.store.abandon()
        broker = new_broker()
        adjusted.clear()  # some adjust to their first settings in the same way
        found = adjusters(broker)
        assert len(found) > 10
        live = next(each for _, _, each in reachable(broker) if isinstance(each, LiveSettings))
        live.apply(live.prepare("brokerPermission=4\nfileReservedTime=24\n"))
        forgotten = {each for key, each in found.items() if key not in adjusted}
        assert forgotten == set()
        broker.store.abandon()

    run(scenario())
