"""The files of a checkpoint as transformers' Trainer leaves them, without torch."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path


def safetensors(content: bytes) -> bytes:
    """A file with one tensor of bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    return len(header).to_bytes(8, "little") + header + content


def torch_file(content: bytes) -> bytes:
    """A zip file, which is what torch.save writes; like there, equal contents give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), content)
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


def stored_path(export: Path, path: str) -> Path:
    """Where a file of the export in a folder is stored."""
    files = json.loads((export / "manifest.json").read_bytes())["files"]
    (key,) = (file.get("key") or file["path"] for file in files if file["path"] == path)
    return export / key


def stored_files(export: Path) -> dict[str, bytes]:
    """The contents of all files that the manifest lists, by their path in the checkpoint."""
    files = json.loads((export / "manifest.json").read_bytes())["files"]
    return {file["path"]: stored_path(export, file["path"]).read_bytes() for file in files}
