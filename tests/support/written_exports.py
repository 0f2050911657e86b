"""Exports as the page finds them: manifests with metrics, origin and files, in the folder of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile


def write_export(
    exports: Path, run: str, name: str = "checkpoint-5", *, files: dict[str, bytes] | None = None, **fields: Any
) -> Manifest:
    """Write an export to `exports/RUN/NAME`; returns its manifest."""
    folder = exports / run / name
    contents = {"model.safetensors": b"weights", **(files or {})}
    listed = []
    for path, content in contents.items():
        (folder / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "a" / path).write_bytes(content)
        listed.append(ManifestFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), key=f"a/{path}"))
    about: dict[str, Any] = {
        "format": "model",
        "step": int(name.partition("-")[2].partition(".")[0]),
        "source": f"{run}/{run}-job",
        "created": "2026-01-01T00:00:00Z",
        "confirmed": "checked",
        "files": tuple(listed),
    }
    manifest = Manifest(**{**about, **fields})
    (folder / MANIFEST).write_bytes(manifest.text())
    return manifest
