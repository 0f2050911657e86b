"""The secrets of an embedded cluster, made once and kept in its home: certificate, key, admin token, signing key, kubeconfig.

Every file is the owner's alone and appears whole or not at all.
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

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CONTEXT = "trainwright"
VALID_FOR = timedelta(days=825)
"""The longest that Apple's clients accept."""
RENEW_BEFORE = timedelta(days=30)
_CERTIFICATE, _KEY, _TOKEN, _SIGNING_KEY = "tls.crt", "tls.key", "admin.token", "signing.key"


@dataclass(frozen=True)
class Credentials:
    """What a server needs to prove itself, and to know who asks."""

    certificate: Path
    key: Path
    admin_token: str = field(repr=False)
    signing_key: bytes = field(repr=False)


def load_credentials(home: Path, *, now: datetime | None = None) -> Credentials:
    """The credentials below `home`; what is missing is made, and a certificate that soon expires is renewed.

    The key stays with the certificate: both are made together.
    """
    now = now or datetime.now(UTC)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    if not _is_valid(home, now):
        certificate, key = self_signed(now)
        # The key first: a certificate in place means that its key is there too.
        write_private(home / _KEY, key)
        write_private(home / _CERTIFICATE, certificate)
    token = _kept(home / _TOKEN, lambda: secrets.token_urlsafe(32).encode())
    signing_key = _kept(home / _SIGNING_KEY, lambda: secrets.token_bytes(32))
    return Credentials(home / _CERTIFICATE, home / _KEY, token.decode(), signing_key)


def self_signed(now: datetime) -> tuple[bytes, bytes]:
    """A certificate for this machine's loopback and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainwright")])
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.IPAddress(ipaddress.ip_address("::1"))]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # An hour back, for clients whose clock lags.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        # It is its own authority: Python from 3.13 on checks authorities strictly, and wants all of these.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


def write_kubeconfig(path: Path, server: str, credentials: Credentials, namespace: str = "default") -> None:
    """A kubeconfig for the server at that URL, for this user's eyes only."""
    authority = base64.b64encode(credentials.certificate.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": CONTEXT, "user": {"token": credentials.admin_token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}],
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, in one step: a reader finds the old content or the new."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _is_valid(home: Path, now: datetime) -> bool:
    """Whether there are a certificate with time left and the key that belongs to it."""
    try:
        certificate = x509.load_pem_x509_certificate((home / _CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((home / _KEY).read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return False
    for name in (_CERTIFICATE, _KEY):
        (home / name).chmod(0o600)
    matches = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
    return matches and certificate.not_valid_after_utc - now > RENEW_BEFORE


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if not content:
        content = make()
        write_private(path, content)
    path.chmod(0o600)
    return content
