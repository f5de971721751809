"""The permission bits of a topic or a broker, and what they allow.

The bits of ``perm``: 8 priority, 4 read, 2 write, 1 inherit (new topics that a send creates take
their settings from a topic with this bit).
Java: PermName.
"""

from __future__ import annotations

from cometmq.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE

READ_WRITE = PERM_READ | PERM_WRITE


def is_readable(perm: int) -> bool:
    """Whether messages may be pulled."""
    return perm & PERM_READ != 0


def is_writable(perm: int) -> bool:
    """Whether messages may be sent."""
    return perm & PERM_WRITE != 0


def is_inherited(perm: int) -> bool:
    """Whether a send to an unknown topic may create it with the settings of this one."""
    return perm & PERM_INHERIT != 0


def text(perm: int) -> str:
    """The three letters mqadmin prints: ``RW-``, ``R--``, ``RWX``."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
