"""Environments of client libraries: kept while they are whole, made anew when they are not, told about when nothing can be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.client_environments import Unavailable, client_environment

pytestmark = pytest.mark.medium

# Stands in for uv: notes what it was asked for, makes a folder with this very Python, and fails as it is told.
UV = f"""#!/bin/sh
echo "$1" >> "$(dirname "$0")/asked"
case "$1" in
venv) for last; do :; done; mkdir -p "$last/bin" && ln -s {sys.executable} "$last/bin/python";;
pip) if [ -e "$(dirname "$0")/words" ]; then cat "$(dirname "$0")/words" >&2; exit 2; fi;;
esac
"""


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    program = tmp_path / "uv"
    program.write_text(UV, "ascii")
    program.chmod(0o755)
    return program


def asked(uv: Path) -> list[str]:
    return (uv.parent / "asked").read_text("ascii").split()


def test_built_once(uv: Path, tmp_path: Path) -> None:
    for _ in range(2):
        python = client_environment("a", ["x==1"], cache=tmp_path / "cache", uv=str(uv))
        assert python.exists()
    assert asked(uv) == ["venv", "pip"]


@pytest.mark.parametrize("damage", ["receipt", "python", "requirements"])
def test_a_broken_one_is_made_anew(damage: str, uv: Path, tmp_path: Path) -> None:
    python = client_environment("a", ["x==1"], cache=tmp_path / "cache", uv=str(uv))
    if damage == "receipt":  # killed before the end
        (python.parents[1] / ".requirements").unlink()
    elif damage == "python":  # the interpreter that it was made with has gone
        python.unlink()
        python.symlink_to(tmp_path / "nowhere")
    stray = python.parents[1] / "stray"
    stray.touch()
    wanted = "x==2" if damage == "requirements" else "x==1"
    assert client_environment("a", [wanted], cache=tmp_path / "cache", uv=str(uv)).exists()
    assert not stray.exists()
    assert asked(uv) == ["venv", "pip"] * 2


def test_without_a_network_it_says_what_to_do(uv: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("error: Failed to fetch: `https://e.com/x`\n  Caused by: dns error\n", "ascii")
    with pytest.raises(Unavailable, match=r"x==1 cannot be installed without a package index.*run once with a network"):
        client_environment("a", ["x==1"], cache=tmp_path / "cache", uv=str(uv))
    (tmp_path / "words").unlink()
    assert client_environment("a", ["x==1"], cache=tmp_path / "cache", uv=str(uv)).exists()


def test_a_version_that_does_not_exist_is_a_failure(uv: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("error: No solution found when resolving dependencies\n", "ascii")
    with pytest.raises(AssertionError, match="No solution found"):
        client_environment("a", ["x==1"], cache=tmp_path / "cache", uv=str(uv))
