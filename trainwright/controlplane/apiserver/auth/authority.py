"""The certificate authority of a cluster, and the server certificate that it signs.

Clients trust the authority, so the server certificate can be renewed without updating them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_VALID_FOR = timedelta(days=3650)
VALID_FOR = timedelta(days=397)
"""Maximum lifetime of server certificates that browsers and Apple clients accept."""
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this far in the past, to tolerate client clock skew."""
_NAMES = ("localhost",)
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key in PEM."""

    certificate: bytes
    key: bytes


def new_authority(now: datetime) -> KeyPair:
    """Create a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # The serial in the name distinguishes an authority from its successor.
    name = _name(f"trainwright authority {serial % 10**8:08d}")
    certificate = (
        _builder(name, name, key, serial, now, AUTHORITY_VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def new_server_certificate(authority: KeyPair, now: datetime) -> KeyPair:
    """Create a certificate for loopback addresses, signed by the authority and expiring no later than it."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = _read(authority)
    lifetime = min(VALID_FOR, issuer.not_valid_after_utc - now)
    names = [x509.DNSName(name) for name in _NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    certificate = (
        _builder(_name("trainwright server"), issuer.subject, key, x509.random_serial_number(), now, lifetime)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        # Python 3.13 and later verify strictly and require all of these.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def is_valid(pair: KeyPair | None, now: datetime, *, issuer: KeyPair | None = None, before: timedelta = RENEW_BEFORE) -> bool:
    """Whether a key pair exists, matches, is valid now and for longer than `before`, and is signed by `issuer`."""
    if pair is None:
        return False
    try:
        certificate, key = _read(pair)
        if issuer is not None:
            certificate.verify_directly_issued_by(_read(issuer)[0])
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    begun = certificate.not_valid_before_utc <= now
    return begun and key.public_key() == certificate.public_key() and certificate.not_valid_after_utc - now > before


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, serial: int, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return certificate, key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), private)
