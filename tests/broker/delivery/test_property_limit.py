"""Properties are shortened to what a record holds: large ones of the user go, a reason says so."""

from __future__ import annotations

import pytest

from cometmq.broker.delivery.property_limit import BYTES_MAX, fit_properties
from cometmq.wire.records import log_record, properties


def test_what_fits_is_left_as_it_came_byte_by_byte() -> None:
    raw = b"a\x01b\x02c\x01d"  # no last separator, as Java's clients leave it
    assert fit_properties(raw) == (raw, [])
    full = b"x" * BYTES_MAX
    assert fit_properties(full) == (full, [])


def test_a_record_of_properties_at_the_limit_has_room_for_its_checksum() -> None:
    assert BYTES_MAX + 1 + log_record.CRC_BYTES == properties.BYTES_MAX


@pytest.mark.parametrize("bytes_max", [60, 100, 5_000])
def test_what_does_not_fit_loses_properties_of_the_user_and_names_them(bytes_max: int) -> None:
    pairs = {"UNIQ_KEY": "K1", "small": "s", "large": "l" * 6_000}
    fitted, left_out = fit_properties(properties.encode(pairs), bytes_max)
    assert len(fitted) <= bytes_max
    assert left_out == ["large"]
    reason = {"DLQ_REASON": "[without large]"}
    assert properties.decode(fitted) == {"UNIQ_KEY": "K1", "small": "s", **reason}
