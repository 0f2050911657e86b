"""Fixtures: exports that consist of little more than a manifest, for what names, compares and promotes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.storage.uri import StorageUri

Export = tuple[str, str]
FILES = (ManifestFile(path="model.safetensors", size=0, sha256="e" * 64, key="attempt/model.safetensors"),)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(StorageUri.from_path(tmp_path / "exports"))


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Export]:
    """URI and digest of an export of a run of this name, trained on these data: `dataset` and `model` are digests."""

    def make(run: str, **origin: str) -> Export:
        folder = tmp_path / "exports" / run / "checkpoint-5"
        folder.mkdir(parents=True)
        metadata = {"origin": origin} if origin else {}
        manifest = Manifest(
            format="model",
            step=5,
            source=run,
            created="2026-01-01T00:00:00Z",
            confirmed="checked",
            files=FILES,
            metadata=metadata,
        )
        (folder / MANIFEST).write_bytes(manifest.text())
        return str(StorageUri.from_path(folder)), manifest.digest

    return make
