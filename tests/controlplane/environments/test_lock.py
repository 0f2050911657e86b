"""The script that renews locks, with answers of uv that are made up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainwright.controlplane.environments import lock
from trainwright.controlplane.environments.definition import Pin, read_lock

TORCH, CPU = read_lock("torch==2.13.0 --hash=sha256:aa\ntorch==2.13.0+cpu --hash=sha256:bb\n")


def unreachable(*_: object) -> list[Pin]:
    raise subprocess.CalledProcessError(1, "uv")


def test_cpu_builds_keep_their_hashes_without_their_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "compiled", unreachable)
    former = tmp_path / "torch.txt"
    former.write_text(f"{TORCH}\n{CPU}\n")
    assert lock.cpu_builds(TORCH, former) == [CPU]
    assert "torch.txt: the index of PyTorch's CPU builds cannot be reached" in capsys.readouterr().out


def test_new_version_needs_the_index_of_cpu_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "compiled", unreachable)
    former = tmp_path / "torch.txt"
    former.write_text("torch==2.12.0+cpu --hash=sha256:bb\n")
    with pytest.raises(SystemExit, match=r"^torch.txt: no hashes of torch==2.13.0\+cpu are known"):
        lock.cpu_builds(TORCH, former)
