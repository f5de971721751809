"""The bits of a permission, as letters and one by one."""

import pytest

from cometmq.rules import permission


@pytest.mark.parametrize(
    ("perm", "text"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (15, "RWX")]
)
def test_permissions_read_as_letters_and_bit_by_bit(perm: int, text: str) -> None:
    assert permission.text(perm) == text
    assert permission.is_readable(perm) is ("R" in text)
    assert permission.is_writable(perm) is ("W" in text)
    assert permission.is_inherited(perm) is ("X" in text)
