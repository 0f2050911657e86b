"""Packed code in the launcher: unpacked only if it is what was sent, and run in its folder."""

from __future__ import annotations

import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.container_command import launch, words_of

from trainwright.jobs.code.code_package import PackedCode, pack_code
from trainwright.jobs.logs.training_log import parse_results
from trainwright.jobs.manifest.mounts import CODE_MOUNT

pytestmark = pytest.mark.medium
MAIN = """
import json, os, pathlib, sys
import helper
from package import value
about = {"argv": sys.argv[1:], "cwd": os.path.basename(os.getcwd()), "here": sorted(os.listdir()), "value": value}
about["run"] = os.access("run.sh", os.X_OK)
pathlib.Path("results.json").write_text(json.dumps(about))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text(MAIN)
    (folder / "helper.py").write_text("")
    (folder / "package" / "__init__.py").write_text("value = 'ü'")
    (folder / "run.sh").write_text('#!/bin/sh\necho "ran $1"\n')
    (folder / "run.sh").chmod(0o755)
    return folder


def mounted(place: Path, *parts: bytes) -> Path:
    """A folder as a projected volume has it: links to files of a hidden folder."""
    data = place / "..2026_11_22"
    data.mkdir(parents=True)
    (place / "..data").symlink_to(data.name)
    for number, part in enumerate(parts):
        (data / f"part-{number:03d}").write_bytes(part)
        (place / f"part-{number:03d}").symlink_to(f"..data/part-{number:03d}")
    return place


def started(tmp_path: Path, code: PackedCode, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    request = train_request(code="/somewhere", command=list(command), args=more.pop("args", []))
    words = words_of(request, code, more.pop("variables", {}), **more.pop("policy", {}))
    place = mounted(tmp_path / "mounted", *code.parts)
    return launch([str(place) if word == CODE_MOUNT else word for word in words], tmp_path, **more)


def test_code_runs_in_its_folder_with_its_modules(tmp_path: Path, folder: Path) -> None:
    code = pack_code(str(folder))
    done = started(tmp_path, code, "train.py", "--lr", "0.1", args=["$(X)", "$$(X)", "a b"], variables={"X": "given"})
    assert done.returncode == 0, done.stderr
    about = parse_results(done.stdout.splitlines())
    assert about == {
        "argv": ["--lr", "0.1", "given", "$(X)", "a b"],
        "cwd": "code",
        "here": ["__pycache__", "helper.py", "package", "run.sh", "train.py"],
        "value": "ü",
        "run": True,
    }


def test_any_command_may_be_run(tmp_path: Path, folder: Path) -> None:
    done = started(tmp_path, pack_code(str(folder)), "./run.sh", "fast")
    assert (done.returncode, done.stdout) == (0, "ran fast\n")
    done = started(tmp_path / "again", pack_code(str(folder)), "python3", "-m", "package")
    assert done.returncode == 1
    assert "No module named package.__main__" in done.stderr


def test_results_of_an_earlier_run_in_the_code_are_not_this_ones(tmp_path: Path, folder: Path) -> None:
    (folder / "results.json").write_text("[1]")
    (folder / "train.py").write_text("print(open('results.json').read())")
    assert started(tmp_path, pack_code(str(folder)), "train.py").stdout == "[1]\n"


def test_many_parts_are_put_together(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.jobs.code.code_package.PART_BYTES", 100)
    monkeypatch.setattr("trainwright.jobs.code.code_package.MAX_PARTS", 1000)
    code = pack_code(str(folder))
    assert len(code.parts) > 3
    assert started(tmp_path, code, "train.py").returncode == 0


def packed(*entries: tuple[tarfile.TarInfo, bytes]) -> PackedCode:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    content = archive.getvalue()
    return PackedCode(hashlib.sha256(content).hexdigest(), (lzma.compress(content),), "test")


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "bad",
    [
        entry("../evil"),
        entry("a/../../evil"),
        entry("/tmp/trainwright-evil"),
        entry("link", tarfile.SYMTYPE, "/etc"),
        entry("link", tarfile.SYMTYPE, "inside.py"),
        entry("link", tarfile.LNKTYPE, "inside.py"),
        entry("pipe", tarfile.FIFOTYPE),
        entry("device", tarfile.CHRTYPE),
    ],
    ids=lambda bad: f"{bad.name}-{bad.type.decode()}",
)
def test_archive_members_other_than_inner_files_are_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    code = packed((entry("inside.py"), b"print('ran')"), (bad, b""))
    done = started(tmp_path, code, "inside.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the code contains {bad.name!r}, which is not a regular file inside the archive's folder" in done.stderr
    assert not (tmp_path / "evil").exists()
    assert not Path("/tmp/trainwright-evil").exists()


def test_only_what_was_sent_is_run(tmp_path: Path, folder: Path) -> None:
    code = pack_code(str(folder))
    done = started(tmp_path / "1", PackedCode("0" * 64, code.parts, ""), "train.py")
    assert done.returncode == 1
    assert f"is not the submitted code: its digest is not {'0' * 64}" in done.stderr
    for number, parts in enumerate([(code.parts[0][:-20],), (b"x" + code.parts[0],), (b"",), ()]):
        done = started(tmp_path / f"damaged-{number}", PackedCode(code.digest, parts, ""), "train.py")
        assert (done.returncode, done.stdout) == (1, "")
        assert " is corrupt: " in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("print('whole')", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('told')", 1, "told"),
        ("raise ValueError('told')", 1, "ValueError: told"),
    ],
)
def test_a_script_under_torchrun_ends_as_it_would(tmp_path: Path, folder: Path, end: str, code: int, words: str) -> None:
    """torchrun itself takes seconds to start and reports its children in its own way: the file that it is given is run here."""
    from trainwright.runtimes.launch import SCRIPT_RUNNER, wrap_script

    (folder / "train.py").write_text(
        "import atexit, sys, helper\natexit.register(print, 'at exit')\nprint(sys.argv, __name__, __file__[-8:], flush=True)\n"
        + end
    )
    command = wrap_script(["torchrun", "--nnodes", "1", "train.py", "--lr", "1"], str(tmp_path))
    assert command == ["torchrun", "--nnodes", "1", str(tmp_path / "orderly.py"), "train.py", "--lr", "1"]
    assert (tmp_path / "orderly.py").read_text() == SCRIPT_RUNNER
    done = launch([sys.executable, *command[3:]], folder)
    assert done.returncode == code
    assert done.stdout.startswith("['train.py', '--lr', '1'] __main__ train.py\n")
    assert done.stdout.endswith("at exit\n")
    assert words in done.stderr
    assert bool(done.stderr) is bool(words)


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-u", "train.py"],
        ["python3", "-m", "train.py"],
        ["./train.py"],
        ["python2.7", "train.py"],
        ["torchrun", "-m", "package"],
        ["torchrun", "--no-python", "x.py"],
        ["torchrun", "--module", "a.py"],
        ["accelerate", "launch", "train.py"],
    ],
)
def test_command_other_than_a_script_is_unchanged(tmp_path: Path, command: list[str]) -> None:
    from trainwright.runtimes.launch import wrap_script

    assert wrap_script(command, str(tmp_path)) == command


def test_script_of_another_python_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainwright.runtimes.launch import wrap_script

    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "python").symlink_to(sys.executable)
    assert wrap_script(["python", "train.py", "a"], "/tmp/l") == ["python", "/tmp/l/entry_errors.py", "train.py", "a"]
    (tmp_path / "python").unlink()
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    assert wrap_script(["python", "train.py", "a"], "/tmp/l") == ["python", "train.py", "a"]


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("open('results.json', 'w').write('[1]')", 0), ("sys.exit(3)", 1)])
def test_torchrun_runs_the_code(tmp_path: Path, folder: Path, end: str, code: int) -> None:
    (folder / "train.py").write_text("import os, sys\nprint('rank', os.environ['RANK'], flush=True)\n" + end)
    done = started(tmp_path, pack_code(str(folder)), "train.py", policy={"torch": {}}, OMP_NUM_THREADS="1")
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("rank 0\n")
    assert parse_results(done.stdout.splitlines()) == ([1] if code == 0 else None)
