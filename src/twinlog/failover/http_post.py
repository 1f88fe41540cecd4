"""One HTTP/1.1 POST over a connection of its own: as much HTTP as etcd's JSON gateway needs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from twinlog.base.addresses import address_text

_RESPONSE_BYTES_MAX = 8 * 1024 * 1024


class NotHttp(ValueError):
    """Bytes that are not a whole HTTP response."""


async def post(
    host: str, port: int, path: str, body: bytes, *, headers: dict[str, str], tls: ssl.SSLContext | None
) -> tuple[int, bytes]:
    """(status, body) of the response. OSError before anything was sent is a NotSent; NotHttp for a broken response."""
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_RESPONSE_BYTES_MAX)
    except OSError as error:
        raise NotSent(str(error)) from error
    try:
        lines = [f"POST {path} HTTP/1.1", f"Host: {address_text(host, port)}", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        data = bytearray()
        while chunk := await reader.read(65536):
            data += chunk
            if len(data) > _RESPONSE_BYTES_MAX:
                raise NotHttp(f"the response has more than {_RESPONSE_BYTES_MAX} bytes")
        return decode_response(bytes(data))
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            if tls is None:  # a TLS peer may take long to say goodbye
                await writer.wait_closed()


class NotSent(OSError):
    """The connection was not made: the peer has not seen the request."""


def decode_response(data: bytes) -> tuple[int, bytes]:
    """(status, body) of a whole response, after which the peer closed the connection."""
    head, separator, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ", 2)
    if not separator or not words[0].startswith(b"HTTP/1.") or len(words) < 2 or not _is_natural(words[1]):
        raise NotHttp(f"not an HTTP response: {data[:60]!r}")
    status = int(words[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        return status, _joined_chunks(body)
    length = headers.get(b"content-length")
    if length is not None:
        if not _is_natural(length) or len(body) < int(length):
            raise NotHttp(f"the response ends after {len(body)} of {length[:20]!r} bytes")
        body = body[: int(length)]
    return status, body


def _joined_chunks(data: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while True:
        line_end = data.find(b"\r\n", at)
        size_text = data[at:line_end].partition(b";")[0].strip() if line_end >= 0 else b""
        if not size_text or len(size_text) > 8 or size_text.strip(b"0123456789abcdefABCDEF"):
            raise NotHttp("the response ends within its chunks")
        size = int(size_text, 16)
        if size == 0:
            return b"".join(parts)
        at = line_end + 2 + size + 2
        if len(data) < at:
            raise NotHttp("the response ends within a chunk")
        parts.append(data[line_end + 2 : at - 2])


def _is_natural(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 12
