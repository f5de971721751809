"""TLS on uvloop, which the servers use where it is installed: its transports are others."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from net import test_tls_layer as tls
from net.serving import BOUND_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

uvloop = pytest.importorskip("uvloop")


def on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, BOUND_S))


@pytest.mark.parametrize(
    "same",
    [
        tls.test_tls_and_plain_connections_are_answered_at_one_port,
        partial(tls.test_bodies_of_any_size_go_both_ways, 9_000_001),
        partial(tls.test_certificates_of_clients_are_checked, "require", "client", is_served=True),
        tls.test_a_client_that_does_not_read_is_not_read_from_and_bounded,
        tls.test_a_stopping_server_ends_tls_connections,
        tls.test_a_client_that_ends_its_tls_is_gone_and_seen_as_having_left,
    ],
    ids=["both", "large", "certificates", "unread", "stop", "end"],
)
def test_it_is_as_on_the_loop_of_the_standard_library(
    same: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "run", on_uvloop)
    same()
