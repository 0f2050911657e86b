"""A published export of a small adapter, and the servers that it is registered in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_upload_server import HubUploadServer

from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.storage.uri import StorageUri

ORIGIN = {"dataset": f"sha256:{'d' * 64}", "model": f"sha256:{'e' * 64}"}
HISTORY = [
    {"step": 1, "loss": 2.5, "learning_rate": 1e-4},
    {"step": 3, "loss": 1.75, "learning_rate": 5e-5},
    {"step": 5, "loss": 1.25, "learning_rate": 0.0},
    {"step": 5, "eval_loss": 1.5, "eval_runtime": 2.0},
]
MakeExport = Callable[..., str]


@pytest.fixture
def make_export(tmp_path: Path, output: Path, write_checkpoint: Callable[..., Path]) -> MakeExport:
    """`make_export(step=5, **files)` publishes a checkpoint of the run `llama-sft` and returns the export's URI."""

    def make(
        step: int = 5,
        *,
        weights: bytes = b"weights",
        source: str = "llama-sft/llama-sft-0",
        target: str = "",
        metadata: dict[str, object] | None = None,
        **files: bytes | None,
    ) -> str:
        history = [*HISTORY[:-2], *({**entry, "step": step} for entry in HISTORY[-2:])]
        state = json.dumps({"global_step": step, "log_history": history}).encode()
        adapter = json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "meta/llama-3"}).encode()
        defaults = {"trainer_state.json": state, "adapter_config.json": adapter, "README.md": b"by PEFT"}
        write_checkpoint(step, weights=weights, **{**defaults, **files})
        exported = export_checkpoint(
            output,
            target or str(StorageUri.from_path(tmp_path / "exports" / "llama-sft")),
            source=source,
            step=step,
            options=ExportOptions(supersede=True),
            metadata=metadata or {"origin": ORIGIN},
        )
        return exported.uri

    return make


@pytest.fixture
def export_uri(make_export: MakeExport) -> str:
    return make_export()


@pytest.fixture
def hub() -> Iterator[HubUploadServer]:
    server = HubUploadServer()
    yield server
    server.stop()
