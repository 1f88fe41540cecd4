"""A self-signed certificate made at the start, for TLS without any files (`tls.test.mode.enable`).

It encrypts and proves nothing about who answers, exactly as Java's test mode. The arithmetic is plain Python: fine for
a key that lives as long as the process, and not for keys of value. ECDSA on P-256, an X.509 v3 certificate in DER:

    certificate  SEQUENCE { to-be-signed, algorithm, signature }
    to-be-signed SEQUENCE { [0] version, serial, algorithm, issuer, validity, subject, public key }
    private key  SEQUENCE { 1, key, [0] curve, [1] public key }
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import textwrap
import time

from twinlog.base.clock import wall_clock_ms

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_CURVE = bytes.fromhex("06082a8648ce3d030107")  # prime256v1
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")  # ecPublicKey
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_DAYS = 3650


def self_signed_pem(name: str = "twinlog") -> tuple[str, str]:
    """(certificate, private key) as PEM text."""
    key = secrets.randbelow(_N - 1) + 1
    point = _public(key)
    certificate = _certificate(name, key, point)
    private = _tlv(
        0x30, _integer(1) + _tlv(0x04, key.to_bytes(32)) + _tlv(0xA0, _CURVE) + _tlv(0xA1, _tlv(0x03, b"\0" + point))
    )
    return _pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", private)


def _certificate(name: str, key: int, point: bytes) -> bytes:
    who = _tlv(0x30, _tlv(0x31, _tlv(0x30, _COMMON_NAME + _tlv(0x0C, name.encode()))))
    now = wall_clock_ms() / 1000
    validity = _tlv(0x30, _time(now - 86_400) + _time(now + _DAYS * 86_400))
    public = _tlv(0x30, _tlv(0x30, _EC_KEY + _CURVE) + _tlv(0x03, b"\0" + point))
    serial = _integer(secrets.randbits(63) | 1)
    body = _tlv(0x30, _tlv(0xA0, _integer(2)) + serial + _ECDSA_SHA256 + who + validity + who + public)
    return _tlv(0x30, body + _ECDSA_SHA256 + _tlv(0x03, b"\0" + _sign(key, body)))


def _sign(key: int, data: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(data).digest())
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        r = int.from_bytes(_public(nonce)[1:33]) % _N
        s = pow(nonce, -1, _N) * (digest + r * key) % _N
        if r and s:
            return _tlv(0x30, _integer(r) + _integer(s))


def _public(scalar: int) -> bytes:
    """The point `scalar` times the generator, uncompressed."""
    x, y, z = 0, 1, 0  # Jacobian coordinates; z = 0 is the point at infinity
    for bit in bin(scalar)[2:]:
        x, y, z = _doubled(x, y, z)
        if bit == "1":
            x, y, z = _plus_generator(x, y, z)
    inverse = pow(z, -1, _P)
    affine_x, affine_y = x * inverse**2 % _P, y * inverse**3 % _P
    return b"\x04" + affine_x.to_bytes(32) + affine_y.to_bytes(32)


def _doubled(x: int, y: int, z: int) -> tuple[int, int, int]:
    if not z:
        return x, y, z
    s = 4 * x * y * y % _P
    m = 3 * (x - z * z) * (x + z * z) % _P
    doubled_x = (m * m - 2 * s) % _P
    return doubled_x, (m * (s - doubled_x) - 8 * pow(y, 4, _P)) % _P, 2 * y * z % _P


def _plus_generator(x: int, y: int, z: int) -> tuple[int, int, int]:
    if not z:
        return *_G, 1
    zz = z * z % _P
    h, r = (_G[0] * zz - x) % _P, (_G[1] * zz * z - y) % _P
    if not h:
        return _doubled(x, y, z) if not r else (0, 1, 0)
    hh = h * h % _P
    hhh, v = h * hh % _P, x * hh % _P
    sum_x = (r * r - hhh - 2 * v) % _P
    return sum_x, (r * (v - sum_x) - y * hhh) % _P, z * h % _P


def _tlv(tag: int, value: bytes) -> bytes:
    length = len(value)
    if length < 0x80:
        return bytes((tag, length)) + value
    size = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(size))) + size + value


def _integer(value: int) -> bytes:
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _time(seconds: float) -> bytes:
    return _tlv(0x18, time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds)).encode())  # GeneralizedTime


def _pem(label: str, der: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
