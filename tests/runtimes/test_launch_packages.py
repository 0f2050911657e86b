"""packages_to_install: what a container lacks is installed into a folder of its own, from an index that the test makes."""

from __future__ import annotations

import base64
import hashlib
import http.server
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.container_command import launch, words_of

from trainwright.jobs.logs.training_log import parse_results
from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK, pinned_requirement

pytestmark = pytest.mark.medium


def wheel(folder: Path, name: str, version: str, *requires: str, source: str = "") -> Path:
    """A wheel of one module, with a program of its name."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {entry}" for entry in requires)]
    files = {
        f"{name}.py": source or f"VERSION = {version!r}\ndef main(): print('program', VERSION)\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-program = {name}:main\n",
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        for path, text in files.items()
    }
    files[f"{info}/RECORD"] = "".join(f"{path},sha256={digest},\n" for path, digest in digests.items()) + f"{info}/RECORD,,\n"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in sorted(place.glob("*.whl")))
    (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return path


def run(tmp_path: Path, source: str, *packages: str, indexes: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    request = train_request(func=source, packages_to_install=list(packages), pip_index_urls=indexes)
    variables = {"PIP_NO_CACHE_DIR": "1", "PIP_CONFIG_FILE": "/dev/null", **more}
    return launch(words_of(request, variables=variables), tmp_path, **variables)


@contextmanager
def index_that_answers(code: int) -> Iterator[str]:
    """Serve a package index that answers every request with this status; yields its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: requests are not of interest."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


USE = """
def f():
    import os, subprocess, twtiny, twother
    program = subprocess.run(["twtiny-program"], capture_output=True, text=True).stdout
    return [twtiny.VERSION, twother.VERSION, program, os.path.basename(os.path.dirname(twtiny.__file__))]
"""


def test_packages_come_from_the_indexes_and_change_nothing(tmp_path: Path) -> None:
    wheel(tmp_path / "first", "twtiny", "1.2", "twother>=1")
    wheel(tmp_path / "second", "twother", "1.0")
    wheel(tmp_path / "second", "twother", "1.1")
    indexes = ["file://$(INDEX)", f"file://{tmp_path}/second"]
    done = run(tmp_path, USE, "twtiny", "pyyaml>=5", indexes=indexes, INDEX=str(tmp_path / "first"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "installed packages: twtiny==1.2, twother==1.1"
    assert parse_results(done.stdout.splitlines()) == ["1.2", "1.1", "program 1.2\n", "packages"]
    with pytest.raises(ModuleNotFoundError):
        __import__("twtiny")


def test_satisfied_packages_are_not_fetched_again(tmp_path: Path) -> None:
    done = run(tmp_path, "def f(): return 1", "pyyaml", indexes=["file:///nowhere"])
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "installed packages: none, all requirements are satisfied")


def test_a_missing_package_is_named_by_pip(tmp_path: Path) -> None:
    wheel(tmp_path / "first", "twtiny", "1.2")
    done = run(tmp_path, "def f(): print('ran')", "twtiny>=2", indexes=[f"file://{tmp_path}/first"])
    assert (done.returncode, done.stdout) == (CANNOT_RUN, "")
    assert f"{CANNOT_RUN_MARK}packages_to_install: No matching distribution found for twtiny>=2" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("answer", "code"), [(404, CANNOT_RUN), (503, 1)])
def test_index_that_does_not_answer_is_not_the_fault_of_the_request(tmp_path: Path, answer: int, code: int) -> None:
    """pip says `No matching distribution found` in each case."""
    with index_that_answers(answer) as url:
        done = run(tmp_path, "def f(): print('ran')", "twtiny", indexes=[url], PIP_RETRIES="0")
    assert "No matching distribution found for twtiny" in done.stderr
    assert (done.returncode, done.stdout) == (code, "")
    assert ("packages_to_install: pip failed with exit code 1" in done.stderr) is (code == 1)


def test_requirements_that_exclude_each_other_are_named(tmp_path: Path) -> None:
    wheel(tmp_path / "first", "twtiny", "1.2", "twother>=2")
    wheel(tmp_path / "first", "twother", "1.0")
    done = run(tmp_path, "def f(): print('ran')", "twtiny", "twother==1.0", indexes=[f"file://{tmp_path}/first"])
    assert done.returncode == CANNOT_RUN
    assert f"{CANNOT_RUN_MARK}packages_to_install: Cannot install" in done.stderr


def test_an_option_is_no_package(tmp_path: Path) -> None:
    done = run(tmp_path, "def f(): print('ran')", "--requirement=/etc/passwd", indexes=[f"file://{tmp_path}"])
    assert (done.returncode, done.stdout) == (CANNOT_RUN, "")
    assert "Invalid requirement" in done.stderr


def test_a_wheel_may_be_named_by_its_url(tmp_path: Path) -> None:
    path = wheel(tmp_path / "first", "twtiny", "1.2")
    source = "def f():\n    import twtiny\n    return twtiny.VERSION"
    done = run(tmp_path, source, f"twtiny @ file://{path}", indexes=["file:///nowhere"])
    assert done.returncode == 0, done.stderr
    assert parse_results(done.stdout.splitlines()) == "1.2"


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({}, "a==1.0+cpu"),
        ({"is_direct": True, "download_info": {"url": "https://h/a.whl", "archive_info": {}}}, "a @ https://h/a.whl"),
        (
            {
                "is_direct": True,
                "download_info": {"url": "https://h/a", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "x/y"},
            },
            "a @ git+https://h/a@abc#subdirectory=x/y",
        ),
    ],
)
def test_a_planned_package_as_a_requirement(entry: dict[str, Any], wanted: str) -> None:
    assert pinned_requirement({"metadata": {"name": "a", "version": "1.0+cpu"}, **entry}) == wanted
