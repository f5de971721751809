"""Bodies compressed by a producer, and made whole again.

Owns: which bits of a record's sysFlag mean which format, and a bound on what comes out.
Refuses to know: records and messages. zlib is always there; LZ4 and Zstandard are when their
packages (`lz4`, `zstandard`) are installed.
Java: CompressionType, Compressor.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cometmq.errors import InvalidMessage, SettingsError
from cometmq.wire.records import sysflag

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_MAX = 256 * 1024 * 1024
"""A body that would become larger than this is refused."""

_ZSTD_STEP = 16 * 1024


def inflate(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before compression, or as it is when `sys_flag` says it isn't compressed.

    Raises InvalidMessage when the bytes are damaged or the way is unknown, SettingsError when
    their package is not installed.
    """
    if not sys_flag & sysflag.COMPRESSED:
        return body
    kind = sys_flag & sysflag.COMPRESSION_MASK
    unpack = _UNPACK.get(kind)
    if unpack is None:
        raise InvalidMessage(f"a body is compressed in a way nobody knows (sysFlag {sys_flag:#x})")
    return unpack(body)


def _zlib(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(body, BYTES_MAX)
    except zlib.error as error:
        raise InvalidMessage(f"a body marked as zlib cannot be inflated: {error}") from error
    if not unpacker.eof:
        raise InvalidMessage("a body marked as zlib is cut short, or larger than 256 MiB inflated")
    return whole


def _lz4(body: bytes) -> bytes:
    unpacker = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        whole: bytes = unpacker.decompress(body, BYTES_MAX)
    except RuntimeError as error:
        raise InvalidMessage(f"a body marked as LZ4 cannot be inflated: {error}") from error
    if not unpacker.eof:
        raise InvalidMessage("a body marked as LZ4 is cut short, or larger than 256 MiB inflated")
    return whole


def _zstd(body: bytes) -> bytes:
    package = _package("zstandard", "zstandard")
    unpacker = package.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    try:
        for at in range(0, len(body), _ZSTD_STEP):
            parts.append(unpacker.decompress(body[at : at + _ZSTD_STEP]))
            if unpacker.eof or sum(map(len, parts)) > BYTES_MAX:
                break
    except package.ZstdError as error:
        raise InvalidMessage(f"a body marked as Zstandard cannot be inflated: {error}") from error
    if not unpacker.eof:
        raise InvalidMessage(
            "a body marked as Zstandard is cut short, or larger than 256 MiB inflated"
        )
    return b"".join(parts)


def _package(module: str, distribution: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise SettingsError(
            f"this way of compression needs the package {distribution}: pip install {distribution}"
        ) from error


_UNPACK: dict[int, Callable[[bytes], bytes]] = {
    sysflag.COMPRESSION_LEGACY_ZLIB: _zlib,
    sysflag.COMPRESSION_ZLIB: _zlib,
    sysflag.COMPRESSION_LZ4: _lz4,
    sysflag.COMPRESSION_ZSTD: _zstd,
}


def deflate(body: bytes, kind: str, level: int) -> tuple[bytes, int]:
    """The body in the way named, where that is shorter, and the bits of sysFlag that say so."""
    packed = PACK[kind](body, level)
    if len(packed) < len(body):
        return packed, sysflag.COMPRESSED | _FLAGS[kind]
    return body, 0


def _pack_lz4(body: bytes, level: int) -> bytes:
    packed: bytes = _package("lz4.frame", "lz4").compress(body, compression_level=level)
    return packed


def _pack_zstd(body: bytes, level: int) -> bytes:
    package = _package("zstandard", "zstandard")
    packed: bytes = package.ZstdCompressor(level=max(1, level)).compress(body)
    return packed


PACK: dict[str, Callable[[bytes, int], bytes]] = {
    "zlib": zlib.compress,
    "lz4": _pack_lz4,
    "zstd": _pack_zstd,
}
"""The ways to compress a body; calling one whose package is missing raises SettingsError."""
_FLAGS = {
    "zlib": sysflag.COMPRESSION_ZLIB,
    "lz4": sysflag.COMPRESSION_LZ4,
    "zstd": sysflag.COMPRESSION_ZSTD,
}
