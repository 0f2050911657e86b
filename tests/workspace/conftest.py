"""A workspace, and finished folders to put into its store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.workspace.receipt import Receipt, digest_files

Finished = Callable[..., tuple[Path, Receipt]]


@pytest.fixture
def finished(workspace: Path) -> Finished:
    """`finished(files, source=..., revision=..., options=..., name=...)`: a folder with these files and their receipt."""

    def make(files: dict[str, bytes] | None = None, *, name: str = "finished", **said: object) -> tuple[Path, Receipt]:
        folder = workspace / "scratch" / name
        for path, content in (files or {"train.jsonl": b'{"text": "t"}\n', "sub/test.jsonl": b'{"text": "u"}\n'}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        paths = [path.relative_to(folder) for path in folder.rglob("*.*") if path.is_file()]
        about = {"kind": "dataset", "source": "file:///rows", "revision": "1", "options": {}, **said}
        receipt = Receipt(files=digest_files(folder, paths), **about)  # type: ignore[arg-type]
        receipt.write(folder)
        return folder, receipt

    return make
