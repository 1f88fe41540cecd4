"""Bodies as clients compress them: zlib, LZ4 frames, zstd. Only clients decompress; brokers never do."""

# Not strict: lz4 has no type stubs.
# pyright: standard

import zlib

from twinlog.wire.errors import CompressionError
from twinlog.wire.values import sys_flag

BODY_BYTES_MAX = 64 * 1024 * 1024  # of a decompressed body; above this it counts as a decompression bomb
_ZSTD_BLOCKS_MAX = 100_000  # a block holds 128 KiB, or what its writer flushed
_ZSTD_RLE = 1  # one byte, repeated `size` times
KINDS = {"zlib": sys_flag.COMPRESSION_ZLIB, "lz4": sys_flag.COMPRESSION_LZ4, "zstd": sys_flag.COMPRESSION_ZSTD}


def compress(body: bytes, kind: str = "zlib", level: int = 5) -> tuple[bytes, int]:
    """The compressed body, and the sysFlag bits for its compression."""
    if kind not in KINDS:
        raise CompressionError(f"compression {kind!r} is unknown; use one of {', '.join(KINDS)}")
    if kind == "zlib":
        data = zlib.compress(body, level)
    elif kind == "lz4":
        import lz4.frame

        data = lz4.frame.compress(body)
    else:
        import zstandard

        data = zstandard.ZstdCompressor(level=level).compress(body)
    return data, sys_flag.COMPRESSED | KINDS[kind]


def decompress(body: bytes, flags: int, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The decompressed body; `body` itself when `flags` do not mark it as compressed."""
    if not flags & sys_flag.COMPRESSED:
        return body
    kind = flags & sys_flag.COMPRESSION_MASK
    if kind in (0, sys_flag.COMPRESSION_ZLIB):
        return _zlib(body, bytes_max)
    if kind == sys_flag.COMPRESSION_LZ4:
        return _lz4(body, bytes_max)
    if kind == sys_flag.COMPRESSION_ZSTD:
        return _zstd(body, bytes_max)
    raise CompressionError(f"compression type {kind >> 8} is unknown to RocketMQ")


def _zlib(body: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, bytes_max)
    except zlib.error as error:
        raise CompressionError(f"zlib body of {len(body)} bytes: {error}") from error
    if not inflater.eof:
        raise _too_large("zlib", body, bytes_max) if inflater.unconsumed_tail else _torn("zlib", body)
    return data


def _lz4(body: bytes, bytes_max: int) -> bytes:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        data = inflater.decompress(body, max_length=bytes_max)
    except RuntimeError as error:
        raise CompressionError(f"lz4 body of {len(body)} bytes: {error}") from error
    if not inflater.eof:
        raise _torn("lz4", body) if inflater.needs_input else _too_large("lz4", body, bytes_max)
    return data


def _zstd(body: bytes, bytes_max: int) -> bytes:
    import zstandard

    # Java writes streams without a content size, so read in pieces and stop at the limit.
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            data = reader.read(bytes_max + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CompressionError(f"zstd body of {len(body)} bytes: {error}") from error
    if len(data) > bytes_max:
        raise _too_large("zstd", body, bytes_max)
    if not _zstd_is_whole(body):  # the reader does not report an incomplete stream
        raise _torn("zstd", body)
    return data


def _zstd_is_whole(body: bytes) -> bool:
    """Whether a frame's last block has arrived: | header | block ... | last block | optional checksum |

    A block begins with 3 bytes, little-endian: bit 0 marks the last one, bits 1 and 2 are the type, the rest the size.
    """
    import zstandard

    try:
        at = zstandard.frame_header_size(body)
        closing = 4 if zstandard.get_frame_parameters(body).has_checksum else 0
    except zstandard.ZstdError:
        return False
    for _ in range(_ZSTD_BLOCKS_MAX):
        if at + 3 > len(body):
            return False
        head = int.from_bytes(body[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == _ZSTD_RLE else head >> 3)
        if head & 1:
            return at + closing <= len(body)
    return False


def _too_large(kind: str, body: bytes, bytes_max: int) -> CompressionError:
    return CompressionError(f"{kind} body of {len(body)} bytes grows above {bytes_max}: a decompression bomb?")


def _torn(kind: str, body: bytes) -> CompressionError:
    return CompressionError(f"{kind} body of {len(body)} bytes ends before its stream does")
