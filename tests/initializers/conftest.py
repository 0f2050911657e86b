"""Sources to prepare from: rows, a model folder, and a hub that the real client speaks to."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from servers.hub_server import HubServer

from trainwright.backoff import Backoff
from trainwright.storage.http.client import RetryPolicy

WHOLE = (2).to_bytes(8, "little") + b"{}"


@pytest.fixture
def model_files() -> dict[str, bytes]:
    """The smallest folder that is a model, with things beside it that are none."""
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors": WHOLE,
        "pytorch_model.bin": b"a pickle",
        "README.md": b"words",
        ".gitattributes": b"",
    }


@pytest.fixture
def rows() -> list[dict[str, str]]:
    return [{"prompt": f"question {number}", "completion": f"Antwort {number} ü"} for number in range(100)]


@pytest.fixture
def lines(rows: list[dict[str, str]]) -> bytes:
    """The rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub as HF_ENDPOINT names it, with short budgets for retries, and no token or cache of the person who runs the tests."""
    from trainwright.initializers import hub as module

    server = HubServer()
    for name in ("HF_TOKEN", "ACCESS_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    # The library has read its variables when it was imported.
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    for name in ("HF_TOKEN_PATH", "HUGGINGFACE_HUB_CACHE", "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    policy = RetryPolicy(first_contact=0.2, without_progress=2.0, backoff=Backoff(0.02, 0.1))
    monkeypatch.setattr(module, "RESOLVE_POLICY", policy)
    monkeypatch.setattr(module, "FETCH_POLICY", policy)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate of 127.0.0.1 that nothing trusts, and the context of a server that has it."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    signed = built.add_extension(x509.SubjectAlternativeName([address]), False).sign(key, hashes.SHA256())
    folder = tmp_path_factory.mktemp("tls")
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context
