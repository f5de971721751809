"""Makes properties fit into a record when the broker adds its own.

The limit holds whatever the store's settings are; `rules/failures/dead_letter_properties` decides
what is left out first. Java: none; such a message is refused there.
"""

from __future__ import annotations

from cometmq.rules.failures.dead_letter_properties import fit_property_pairs
from cometmq.wire.records import log_record as stored
from cometmq.wire.records import properties

BYTES_MAX = properties.BYTES_MAX - stored.CRC_BYTES - 1
"""Room for properties in a record that carries its checksum."""


def fit_properties(raw: bytes, bytes_max: int = BYTES_MAX) -> tuple[bytes, list[str]]:
    """The properties shortened to `bytes_max`, and the names of the user's that were left out."""
    if len(raw) <= bytes_max:
        return raw, []
    found, left_out = fit_property_pairs(properties.decode(raw), bytes_max)
    return properties.encode(found), left_out
