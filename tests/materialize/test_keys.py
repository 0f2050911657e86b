"""Keys: new ones work, and without any the Secrets hold nothing that opens a door."""

from __future__ import annotations

from base64 import b64decode

from built_objects import mpi, of_kind
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key
from factories import runtime, trainjob

from trainwright.materialize import RandomKeys, materialize
from trainwright.materialize.keys import z85


def test_an_ssh_key_pair_belongs_together_and_is_new_each_time() -> None:
    pair = RandomKeys().ssh()
    private = load_pem_private_key(pair.private.encode(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    public = load_ssh_public_key(pair.public.encode())
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert private.public_key().public_numbers() == public.public_numbers()
    assert pair.private.startswith("-----BEGIN EC PRIVATE KEY-----")
    assert RandomKeys().ssh() != pair


def test_the_secrets_of_mpi_and_flux_hold_what_keys_give() -> None:
    secret = of_kind(materialize(trainjob(trainer={"numNodes": 2}), mpi(), keys=RandomKeys()), "Secret")
    assert b64decode(secret["data"]["ssh-publickey"]).startswith(b"ecdsa-sha2-nistp521 ")
    assert secret["immutable"] is True
    certificate = of_kind(
        materialize(trainjob(trainer={"numNodes": 2}), runtime(policy={"flux": {}}), keys=RandomKeys()), "Secret"
    )
    text = b64decode(certificate["data"]["curve.cert"]).decode()
    assert text.count('key = "') == 2
    assert 'name = "demo"' in text


def test_without_keys_the_secret_is_the_same_every_time_and_no_key() -> None:
    one, other = (of_kind(materialize(trainjob(trainer={"numNodes": 2}), mpi()), "Secret") for _ in range(2))
    assert one == other
    assert b"placeholder" in b64decode(one["data"]["ssh-privatekey"])


def test_z85_is_zeromqs() -> None:
    assert z85(bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B])) == "HelloWorld"  # the example of RFC 32
