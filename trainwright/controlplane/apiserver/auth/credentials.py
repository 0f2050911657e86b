"""Creates and renews the credentials of an embedded cluster: CA, certificate, admin token, signing key, kubeconfig.

Files are readable only by their owner and are written atomically. Clients trust the authority, so the server certificate can be
renewed without updating them.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainwright.text.yaml_writer import to_yaml

CONTEXT = "trainwright"
SUCCESSOR_OVERLAP = timedelta(days=365)
"""How long before its expiry an authority is published together with its successor, so that new clients trust both."""
_CERTIFICATE, _KEY, _TOKEN, _SIGNING_KEY = "tls.crt", "tls.key", "admin.token", "signing.key"
_AUTHORITY, _AUTHORITY_KEY, _NEXT, _NEXT_KEY, _TRUSTED = "ca.crt", "ca.key", "ca-next.crt", "ca-next.key", "trusted.crt"
AUTHORITY_VALID_FOR = timedelta(days=3650)
SERVER_VALID_FOR = timedelta(days=397)
"""Maximum lifetime of server certificates that browsers and Apple clients accept."""
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this far in the past, to tolerate client clock skew."""
_SERVER_NAMES = ("localhost",)
_SERVER_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Credentials:
    """The TLS files of a server and the secrets for authenticating clients."""

    certificate: Path
    key: Path
    authority: Path
    """The CA bundle for clients."""
    admin_token: str = field(repr=False)
    signing_key: bytes = field(repr=False)


def load_credentials(home: Path, *, now: datetime | None = None) -> Credentials:
    """Load the credentials in `home`; create missing ones and renew those that expire soon, including the authority.

    A certificate and its key are always created and written together.
    """
    now = now or datetime.now(UTC)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    authority = _renewed_authority(home, now)
    successor = _read_pair(home, _NEXT, _NEXT_KEY)
    trusted = authority.certificate + (successor.certificate if successor else b"")
    if _read_if_exists(home / _TRUSTED) != trusted:
        write_private(home / _TRUSTED, trusted)
    renew_certificate(home, now)
    token = _load_or_create(home / _TOKEN, lambda: secrets.token_urlsafe(32).encode())
    signing_key = _load_or_create(home / _SIGNING_KEY, lambda: secrets.token_bytes(32))
    for path in home.iterdir():
        path.chmod(0o600)
    return Credentials(home / _CERTIFICATE, home / _KEY, home / _TRUSTED, token.decode(), signing_key)


def _renewed_authority(home: Path, now: datetime) -> KeyPair:
    """The signing authority, renewed if necessary; creates its successor in time."""
    authority = _read_pair(home, _AUTHORITY, _AUTHORITY_KEY)
    if authority is None or not is_valid(authority, now):
        successor = _read_pair(home, _NEXT, _NEXT_KEY)
        authority = successor if successor is not None and is_valid(successor, now) else new_authority(now)
        _write_pair(home, authority, _AUTHORITY, _AUTHORITY_KEY)
        for name in (_NEXT, _NEXT_KEY):
            (home / name).unlink(missing_ok=True)
    if not is_valid(authority, now, before=SUCCESSOR_OVERLAP) and not is_valid(_read_pair(home, _NEXT, _NEXT_KEY), now):
        _write_pair(home, new_authority(now), _NEXT, _NEXT_KEY)
    return authority


def _read_pair(home: Path, certificate: str, key: str) -> KeyPair | None:
    contents = _read_if_exists(home / certificate), _read_if_exists(home / key)
    return KeyPair(*contents) if all(contents) else None


def _read_if_exists(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # a new home
        return b""


def _write_pair(home: Path, pair: KeyPair, certificate: str, key: str) -> None:
    # The key first: if the certificate exists, so does its key.
    write_private(home / key, pair.key)
    write_private(home / certificate, pair.certificate)


def _load_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    content = _read_if_exists(path)
    if not content:
        content = make()
        write_private(path, content)
    return content


def renew_certificate(home: Path, now: datetime) -> bool:
    """Renew the server certificate if it is missing, invalid or expires soon; returns whether it was renewed."""
    authority = _read_pair(home, _AUTHORITY, _AUTHORITY_KEY)
    present = _read_pair(home, _CERTIFICATE, _KEY)
    if authority is None or (is_valid(present, now, issuer=authority) and present != authority):
        return False
    _write_pair(home, new_server_certificate(authority, now), _CERTIFICATE, _KEY)
    return True


def write_kubeconfig(path: Path, server: str, credentials: Credentials, namespace: str = "default") -> None:
    """Write a kubeconfig for the server URL, readable only by its owner."""
    authority = base64.b64encode(credentials.authority.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": CONTEXT, "user": {"token": credentials.admin_token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}],
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, to_yaml(config).encode())


def write_private(path: Path, content: bytes) -> None:
    """Atomically write a file that only its owner can read."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # also an interrupt: no half a key stays
        Path(temporary).unlink(missing_ok=True)
        raise


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
    name = _x509_name(f"trainwright authority {serial % 10**8:08d}")
    certificate = (
        _builder(name, name, key, serial, now, AUTHORITY_VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _x509_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


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


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), private)


def new_server_certificate(authority: KeyPair, now: datetime) -> KeyPair:
    """Create a certificate for loopback addresses, signed by the authority and expiring no later than it."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = _parsed_pair(authority)
    lifetime = min(SERVER_VALID_FOR, issuer.not_valid_after_utc - now)
    names = [x509.DNSName(name) for name in _SERVER_NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _SERVER_ADDRESSES]
    certificate = (
        _builder(_x509_name("trainwright server"), issuer.subject, key, x509.random_serial_number(), now, lifetime)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        # Python 3.13 and later verify strictly and require all of these.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _parsed_pair(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return certificate, key


def is_valid(pair: KeyPair | None, now: datetime, *, issuer: KeyPair | None = None, before: timedelta = RENEW_BEFORE) -> bool:
    """Whether a key pair exists, matches, is valid now and for longer than `before`, and is signed by `issuer`."""
    if pair is None:
        return False
    try:
        certificate, key = _parsed_pair(pair)
        if issuer is not None:
            certificate.verify_directly_issued_by(_parsed_pair(issuer)[0])
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        # Damaged, of a kind not made here, or of another authority: made anew.
        return False
    begun = certificate.not_valid_before_utc <= now
    return begun and key.public_key() == certificate.public_key() and certificate.not_valid_after_utc - now > before
