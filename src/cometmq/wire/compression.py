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

BYTES_MAX = 16 * 1024 * 1024
"""Largest body that comes out unless the caller says otherwise: four times RocketMQ's largest
message. Producers check a body before they compress it, so an honest one fits."""

_ZSTD_BYTES_PER_BYTE = 32 * 1024
"""What one byte of a Zstandard frame may become: four of them repeat a byte 131,072 times."""
_ZSTD_LEAST_STEP = 16
_ZSTD_LEAST_WINDOW = 8 * 1024 * 1024
"""The window that every decoder of Zstandard should have, for a body of any length."""


def inflate(body: bytes, sys_flag: int, bytes_max: int = BYTES_MAX) -> bytes:
    """The body as it was before compression, or as it is when `sys_flag` says it isn't compressed.

    No more than `bytes_max` and a little are ever made. Raises InvalidMessage when the body would
    be larger, when the bytes are damaged or the way is unknown, SettingsError when their package
    is not installed.
    """
    if not sys_flag & sysflag.COMPRESSED:
        return body
    kind = sys_flag & sysflag.COMPRESSION_MASK
    unpack = _UNPACK.get(kind)
    if unpack is None:
        raise InvalidMessage(f"a body is compressed in a way nobody knows (sysFlag {sys_flag:#x})")
    return unpack(body, bytes_max)


def _zlib(body: bytes, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(body, bytes_max + 1)  # one more: so an end is an end
    except zlib.error as error:
        raise InvalidMessage(f"a body marked as zlib cannot be inflated: {error}") from error
    return _checked(whole, "zlib", bytes_max, is_cut=not unpacker.eof)


def _lz4(body: bytes, bytes_max: int) -> bytes:
    unpacker = _package("lz4.frame", "lz4").LZ4FrameDecompressor()
    try:
        whole: bytes = unpacker.decompress(body, bytes_max + 1)
    except RuntimeError as error:
        raise InvalidMessage(f"a body marked as LZ4 cannot be inflated: {error}") from error
    return _checked(whole, "LZ4", bytes_max, is_cut=not unpacker.eof)


def _zstd(body: bytes, bytes_max: int) -> bytes:
    package = _package("zstandard", "zstandard")
    window_bytes = max(_ZSTD_LEAST_WINDOW, 1 << bytes_max.bit_length())
    unpacker = package.ZstdDecompressor(max_window_size=window_bytes).decompressobj()
    parts: list[bytes] = []
    size = at = 0
    try:
        while at < len(body) and size <= bytes_max and not unpacker.eof:
            step = max(_ZSTD_LEAST_STEP, (bytes_max - size) // _ZSTD_BYTES_PER_BYTE)
            part = unpacker.decompress(body[at : at + step])
            parts.append(part)
            size += len(part)
            at += step
    except package.ZstdError as error:
        raise InvalidMessage(f"a body marked as Zstandard cannot be inflated: {error}") from error
    return _checked(b"".join(parts), "Zstandard", bytes_max, is_cut=not unpacker.eof)


def _checked(whole: bytes, name: str, bytes_max: int, *, is_cut: bool) -> bytes:
    if len(whole) > bytes_max:
        raise InvalidMessage(
            f"a body marked as {name} is larger than {bytes_max} bytes when it is inflated"
        )
    if is_cut:
        raise InvalidMessage(f"a body marked as {name} is cut short")
    return whole


def _package(module: str, distribution: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise SettingsError(
            f"this way of compression needs the package {distribution}: pip install {distribution}"
        ) from error


_UNPACK: dict[int, Callable[[bytes, int], bytes]] = {
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
