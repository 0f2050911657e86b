"""Folders that all pods see: those that the operator names, but neither the home folder nor the home of the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.controlplane.host_paths import SHARED_FOLDERS, HostPathPolicy, shared_folder_problems, shared_folders


def policy_of(home: Path) -> HostPathPolicy:
    return HostPathPolicy(home, home / "node" / "claims")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "user" / "cluster"
    (home / "credentials").mkdir(parents=True)
    (tmp_path / "user" / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "user")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return home


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("user/data", ""),
        ("user", "it is or contains your home folder"),
        ("", "it is or contains your home folder"),
        ("link", "it is or contains your home folder"),
        ("user/cluster", "is in the home of the cluster"),
        ("link/cluster/credentials", "is in the home of the cluster"),
        ("/dev/shm", "is not shared"),
        ("/proc/sys", "is in /proc"),
        ("none", "it is not the absolute path of a folder"),
    ],
)
def test_folders_that_would_show_a_home_are_left_out(
    home: Path, name: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    monkeypatch.setenv(SHARED_FOLDERS, os.pathsep.join((str(folder), "relative")))
    assert shared_folders(policy_of(home)) == (() if problem else (folder.resolve(),))
    told = shared_folder_problems(policy_of(home))
    assert told[-1].startswith(f"{SHARED_FOLDERS}: relative is not shared: it is not the absolute path of a folder")
    assert [problem in line for line in told[:-1]] == ([True] if problem else [])


def test_a_folder_that_contains_the_home_of_the_cluster_is_shared(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv(SHARED_FOLDERS, str(tmp_path / "user"))
    assert shared_folders(policy_of(home)) == (tmp_path / "user",)  # the home is hidden in it
