"""The whole input, read once for all tests of this directory."""

import pytest

from cometmq.demo.flights.dataset import Flight, read_flights


@pytest.fixture(scope="session")
def whole_year() -> list[Flight]:
    return read_flights()
