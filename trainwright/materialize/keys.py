"""Key material for Secrets, passed to `materialize` by the caller, because `materialize` is deterministic.

Random keys for every TrainJob are generated with `cryptography`, which is imported on first use.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

NO_KEY = "placeholder: the key is made where the object is created\n"
"""Deliberately not a key: objects that are only printed or checked must not contain usable keys."""
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True)
class SshKeyPair:
    """`private` is PEM text, `public` a line of authorized_keys with a newline."""

    private: str
    public: str


class Keys(Protocol):
    """A source of keys, called once for a TrainJob that needs one."""

    def ssh(self) -> SshKeyPair:
        """Return the key pair for ssh from an MPI launcher to its workers."""
        ...

    def curve_certificate(self, name: str) -> str:
        """Return a ZeroMQ CURVE certificate, as text, shared by the Flux brokers of a job."""
        ...

    def tls(self, host: str) -> str:
        """Return a self-signed certificate for a name and its private key, both as PEM in one text."""
        ...

    def token(self) -> str:
        """Return a token of 256 random bits, as hexadecimal digits."""
        ...


class PlaceholderKeys:
    """A constant text, so that materialization is a pure function."""

    def ssh(self) -> SshKeyPair:
        return SshKeyPair(NO_KEY, NO_KEY)

    def curve_certificate(self, name: str) -> str:
        return f"# {name}\n{NO_KEY}"

    def tls(self, host: str) -> str:
        return f"# {host}\n{NO_KEY}"

    def token(self) -> str:
        return NO_KEY


class RandomKeys:
    """Random keys. Upstream derives the Flux certificate from the TrainJob's UID, so that anyone who can read the UID has the key."""

    def ssh(self) -> SshKeyPair:
        """Generate an ECDSA P-521 key in SEC1 format, as mpi-operator's images expect."""
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP521R1())
        private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.TraditionalOpenSSL, s.NoEncryption())
        public = key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
        return SshKeyPair(private.decode(), public.decode() + "\n")

    def curve_certificate(self, name: str) -> str:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        key = X25519PrivateKey.generate()
        public, secret = z85(key.public_key().public_bytes_raw()), z85(key.private_bytes_raw())
        return (
            "# ZeroMQ CURVE secret certificate\n"
            "# Whoever holds it can join the brokers of this TrainJob\n"
            f'metadata\n    name = "{name}"\n'
            f'curve\n    public-key = "{public}"\n    secret-key = "{secret}"\n'
        )

    def tls(self, host: str) -> str:
        """Generate an ECDSA P-256 key and a certificate for ten years: no job lasts as long, and the key ends with its job."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=3650))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        certificate = builder.sign(key, hashes.SHA256()).public_bytes(s.Encoding.PEM)
        return (certificate + key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())).decode()

    def token(self) -> str:
        return secrets.token_hex(32)


def z85(data: bytes) -> str:
    """Encode binary data in Z85 (ZeroMQ RFC 32): five base-85 digits for four bytes."""
    digits: list[str] = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        digits.extend(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return "".join(digits)
