"""A dataset or model as an initializer leaves it: only the digest of the contents matters here."""

from __future__ import annotations

from pathlib import Path

from trainwright.workspace.receipt import Receipt, ReceiptFile


def prepare(workspace: Path, kind: str, content: str) -> str:
    """`kind` is `dataset` or `model`; `content` one hexadecimal digit. Returns the digest."""
    return prepare_at(workspace / kind, kind, content)


def prepare_at(folder: Path, kind: str, content: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_bytes(b"x")
    receipt = Receipt(kind=kind, source="file:///x", revision="", files=(ReceiptFile(path="file", size=1, sha256=content * 64),))
    receipt.write(folder)
    return receipt.digest
