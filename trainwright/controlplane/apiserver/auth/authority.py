"""The certificate authority of one home, and the server certificate that it signs.

Clients trust the authority, so that the server's certificate can be renewed without telling them.
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
"""Clients of browsers and of Apple refuse server certificates that last longer."""
RENEW_BEFORE = timedelta(days=30)
EARLY = timedelta(hours=1)
"""How far certificates begin in the past, for clients whose clock lags."""
_NAMES = ("localhost",)
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def new_authority(now: datetime) -> Pair:
    """An authority of its own: its key never leaves the home."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # The serial in the name: an authority and its successor must not be taken for each other.
    name = _name(f"trainwright authority {serial % 10**8:08d}")
    certificate = (
        _begun(name, name, key, serial, now, AUTHORITY_VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def server_pair(authority: Pair, now: datetime) -> Pair:
    """A certificate for this machine's loopback, signed by the authority; it never outlives it."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = _read(authority)
    lasting = min(VALID_FOR, issuer.not_valid_after_utc - now)
    names = [x509.DNSName(name) for name in _NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    certificate = (
        _begun(_name("trainwright server"), issuer.subject, key, x509.random_serial_number(), now, lasting)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        # Python from 3.13 on checks strictly, and wants all of these.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def lasts(pair: Pair | None, now: datetime, *, issuer: Pair | None = None, before: timedelta = RENEW_BEFORE) -> bool:
    """Whether a pair is there, belongs together, has begun, has time left, and was signed by `issuer`."""
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


def is_authority(pair: Pair) -> bool:
    """Whether a certificate may sign others."""
    try:
        return _read(pair)[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        return False


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, serial: int, now: datetime, lasting: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - EARLY)
        .not_valid_after(now + lasting)
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


def _read(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("another sort of key")
    return certificate, key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), private)
