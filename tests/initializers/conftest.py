"""Sources to prepare from: rows, a model folder, and a hub that the real client speaks to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer

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
    """A hub that `huggingface_hub` takes for the real one, and no token or cache of the person who runs the tests."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    server = HubServer()
    for name, value in {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "HF_TOKEN_PATH": str(tmp_path / "hf" / "token"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name in ("HF_TOKEN", "ACCESS_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.stop()
