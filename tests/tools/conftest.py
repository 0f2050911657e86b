"""Environments of real tools, and wheels that no index is needed for."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.tools import ToolUnavailable, tool_environment


@pytest.fixture
def real_tools() -> Callable[[list[str], str], Path]:
    """Build the environment of a tool, or skip where no package index can be reached."""

    def build(requirements: list[str], name: str) -> Path:
        try:
            return tool_environment(requirements, name=name)
        except ToolUnavailable as error:
            pytest.skip(str(error))

    return build


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the wheel of a tiny package, as the only source of packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    about = "tiny_tool-1.5.dist-info"
    with zipfile.ZipFile(folder / "tiny_tool-1.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_tool.py", "answer = 42\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-tool\nVersion: 1.5\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"tiny_tool.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    for name in ("UV_FIND_LINKS", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder
