"""An environment of a tool is built once, by uv or pip, whatever happens in between."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pydantic
import pytest

from trainwright.tools import ToolUnavailable, tool_environment

pytestmark = pytest.mark.medium
FAKE_UV = """#!{python}
import json, os, sys, time
with open(os.environ["UV_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "venv":
    os.makedirs(sys.argv[-1] + "/bin", exist_ok=True)
    os.symlink({python!r}, sys.argv[-1] + "/bin/python")
else:
    exec(os.environ.get("UV_DOES", ""))
"""


class FakeUv:
    """A program that writes down what it is called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.log, self._monkeypatch = folder / "uv.log", monkeypatch
        program = folder / "uv"
        program.write_text(FAKE_UV.format(python=sys.executable), "utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("UV_LOG", str(self.log))
        monkeypatch.setattr("trainwright.tools.installation.find_uv", lambda: str(program))

    def does(self, code: str) -> None:
        self._monkeypatch.setenv("UV_DOES", code)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    return FakeUv(tmp_path, monkeypatch)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "tools"


def build(cache: Path, requirement: str = "some-tool==1", **options: object) -> Path:
    return tool_environment([requirement], name="some", cache=cache, **options)  # type: ignore[arg-type]


def test_environment_is_built_once_and_is_private(uv: FakeUv, cache: Path) -> None:
    python = build(cache)
    assert build(cache) == python
    assert [call[0] for call in uv.calls] == ["venv", "pip"]
    assert uv.calls[1][-1] == "some-tool==1"
    assert python.is_file()
    assert python.parents[1].name.startswith("some-")
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (cache, python.parents[1])} == {0o700}


def test_other_requirements_have_another_environment(uv: FakeUv, cache: Path) -> None:
    assert build(cache) != build(cache, "some-tool==2")
    assert len(uv.calls) == 4


def test_the_variable_says_where(uv: FakeUv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_TOOLS", str(tmp_path / "given"))
    assert tool_environment(["some-tool==1"], name="some").is_relative_to(tmp_path / "given")
    monkeypatch.delenv("TRAINWRIGHT_TOOLS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert tool_environment(["some-tool==1"], name="some").is_relative_to(tmp_path / "xdg/trainwright/tools")


@pytest.mark.parametrize("damage", ["no receipt", "no interpreter", "other receipt"])
def test_a_killed_or_broken_one_is_made_anew(uv: FakeUv, cache: Path, damage: str) -> None:
    folder = build(cache).parents[1]
    (folder / "left").touch()
    match damage:
        case "no receipt":
            (folder / ".trainwright-tool.json").unlink()
        case "no interpreter":
            (folder / "bin/python").unlink()
            (folder / "bin/python").symlink_to("/no/such/python")
        case _:
            (folder / ".trainwright-tool.json").write_text("{}")
    build(cache)
    assert len(uv.calls) == 4
    assert not (folder / "left").exists()


def test_of_three_at_once_one_builds(uv: FakeUv, cache: Path) -> None:
    uv.does("time.sleep(0.3)")
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(build(cache))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert len(uv.calls) == 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("error: No space left on device (os error 28)", "set TRAINWRIGHT_TOOLS to a folder on a larger disk"),
        ("error sending request for url (https://u:pw12345@index/x)", "index cannot be reached; set PIP_INDEX_URL"),
        ("No solution found when resolving dependencies", "cannot be installed (uv ended with 2)"),
    ],
)
def test_a_failure_says_what_to_do_and_no_password(
    uv: FakeUv, cache: Path, said: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://u:pw12345@index/simple")
    uv.does(f"print({said!r} + ' pw12345', file=sys.stderr); sys.exit(2)")
    with pytest.raises(ToolUnavailable) as caught:
        build(cache)
    assert expected in str(caught.value)
    assert "some-tool==1" in str(caught.value)
    assert "pw12345" not in str(caught.value)
    assert not [folder for folder in cache.iterdir() if folder.is_dir()]


def test_a_build_that_takes_too_long_is_ended(uv: FakeUv, cache: Path) -> None:
    uv.does("time.sleep(60)")
    with pytest.raises(ToolUnavailable, match="did not end within"):
        build(cache, timeout_seconds=1.0)


def test_a_cache_that_is_no_folder_is_an_error_with_advice(uv: FakeUv, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolUnavailable, match="set TRAINWRIGHT_TOOLS"):
        build(tmp_path / "file" / "tools")


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_real_environment_has_the_package_and_nothing_of_this_one(
    installer: str, cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installer == "pip":
        monkeypatch.setattr("trainwright.tools.installation.find_uv", lambda: None)
    elif shutil.which("uv") is None and not Path(sys.executable).with_name("uv").exists():
        pytest.skip("uv is not installed")
    python = tool_environment(["tiny-tool>=1"], name="tiny", cache=cache)
    code = "import importlib.util, tiny_tool; print(tiny_tool.answer, importlib.util.find_spec('pydantic') is None)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["42", "True"]
    with pytest.raises(ToolUnavailable, match="tiny-tool>=2"):
        tool_environment(["tiny-tool>=2"], name="tiny", cache=cache)


@pytest.mark.slow
def test_packages_of_this_environment_are_reused_if_asked_for(cache: Path, wheels: Path) -> None:
    python = tool_environment(["tiny-tool>=1", "pydantic>=2"], name="tiny", cache=cache, system_packages=True)
    code = "import pydantic, tiny_tool; print(pydantic.__file__)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == pydantic.__file__
