"""Makes properties fit into the bytes a record has for them, when the broker adds its own.

Owns the limit that holds whatever the store's settings are; what gives way first is a rule
(`rules.dead_letter`). Refuses to know what the properties are for.
Java: nothing alike; there such a message is refused.
"""

from __future__ import annotations

from cometmq.rules.dead_letter_properties import fitted
from cometmq.wire import log_record as stored
from cometmq.wire import properties

BYTES_MAX = properties.BYTES_MAX - stored.CRC_BYTES - 1
"""Room for properties in a record that carries its checksum."""


def fit(raw: bytes, bytes_max: int = BYTES_MAX) -> tuple[bytes, list[str]]:
    """The properties, without some where they take more bytes, and which of the user's went."""
    if len(raw) <= bytes_max:
        return raw, []
    found, left_out = fitted(properties.decode(raw), bytes_max)
    return properties.encode(found), left_out
