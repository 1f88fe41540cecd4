"""Certificates for TLS: a private authority, and certificates that it signs; or one that signs itself.

Keys are ECDSA on P-256, in PEM. `twinlog tls init` writes them to files; `tls.test.mode.enable` uses a self-signed one,
which encrypts and proves nothing about who answers, as Java's test mode.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLIER = datetime.timedelta(minutes=5)  # a peer's clock may be behind


class Pair(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: str
    key: str


def make_authority(name: str = "twinlog private authority", days: int = 3650) -> Pair:
    """An authority of its own, which signs the certificates of one cluster."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, name: str, hosts: Iterable[str] = (), days: int = 825) -> Pair:
    """A certificate for a server at `hosts` (names or addresses), or a client: peers are both."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "make_authority makes no other key"
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_name = str(issuer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    builder = _builder(name, issuer_name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    known_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(known_by, critical=False)
    if names := [_alternative(host) for host in hosts]:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def self_signed(name: str = "twinlog", days: int = 3650) -> Pair:
    """A certificate that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _pair(_builder(name, name, key.public_key(), days).sign(key, hashes.SHA256()), key)


def _builder(name: str, issuer: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + datetime.timedelta(days=days)) - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem).decode(), private.decode())
