"""Generates random keys for every TrainJob with `cryptography`, which is imported on first use."""

from __future__ import annotations

from trainwright.materialize.keys import SshKeyPair

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


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


def z85(data: bytes) -> str:
    """Encode binary data in Z85 (ZeroMQ RFC 32): five base-85 digits for four bytes."""
    digits: list[str] = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        digits.extend(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return "".join(digits)
