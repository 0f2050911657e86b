"""Checkpoints as transformers' Trainer leaves them, file by file, without torch."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

WriteCheckpoint = Callable[..., Path]


def safetensors(content: bytes) -> bytes:
    """A file with one tensor of bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    return len(header).to_bytes(8, "little") + header + content


def torch_file(content: bytes) -> bytes:
    """A zip file, which is what torch.save writes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return buffer.getvalue()


def checkpoint_files(step: int, weights: bytes = b"weights") -> dict[str, bytes]:
    return {
        "adapter_model.safetensors": safetensors(weights),
        "adapter_config.json": b'{"peft_type": "LORA"}',
        "optimizer.pt": torch_file(b"optimizer"),
        "scheduler.pt": torch_file(b"scheduler"),
        "rng_state.pth": torch_file(b"rng"),
        "training_args.bin": b"a pickle",
        "nested/ü.txt": b"",
        "trainer_state.json": json.dumps({"global_step": step, "log_history": []}).encode(),
    }


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A training output folder."""
    return tmp_path / "output"


@pytest.fixture
def write_checkpoint(output: Path) -> WriteCheckpoint:
    """`write_checkpoint(step, weights=b"...", **files)` in `output`; a file that is None is left out."""

    def write(step: int, weights: bytes = b"weights", **files: bytes | None) -> Path:
        folder = output / f"checkpoint-{step}"
        for name, content in {**checkpoint_files(step, weights), **files}.items():
            if content is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        return folder

    return write
