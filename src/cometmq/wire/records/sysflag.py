"""Bits of a record's sysFlag: compression, transaction state, address families.

Only the meaning of the bits; `wire/compression` inflates bodies.
Java: MessageSysFlag, CompressionType.
"""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LEGACY_ZLIB = 0x000
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300
COMPRESSED_ZLIB = COMPRESSED | COMPRESSION_ZLIB
"""What current clients set when they deflate a body."""


def transaction_of(sys_flag: int) -> int:
    """The transaction bits: one of the four `TRANSACTION_*` values."""
    return sys_flag & TRANSACTION_MASK


def is_queued(sys_flag: int) -> bool:
    """Whether such a record gets a queue entry; half and rolled-back ones do not."""
    return not sys_flag & TRANSACTION_PREPARED


def with_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """The flag with its IPv6 bits set to match the packed addresses (8 or 20 bytes each)."""
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) > 8:
        sys_flag |= BORN_HOST_V6
    if len(store_host) > 8:
        sys_flag |= STORE_HOST_V6
    return sys_flag
