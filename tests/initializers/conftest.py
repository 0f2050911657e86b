"""Sources to prepare from: rows, a model folder, and a hub that the real client speaks to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from servers.hub_server import HubServer

from trainwright.backoff import Backoff
from trainwright.storage.http.retries import RetryPolicy

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
