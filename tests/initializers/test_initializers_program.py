"""`python -m trainwright.initializers`: what a TrainJob's initializer steps run, by its exit codes and its words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.initializers import __main__ as program
from trainwright.initializers import dataset
from trainwright.storage.errors import NoSpace
from trainwright.storage.uri import StorageUri


@pytest.fixture
def source(tmp_path: Path, lines: bytes) -> str:
    (tmp_path / "rows.jsonl").write_bytes(lines)
    return str(StorageUri.of_path(tmp_path / "rows.jsonl"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """`run(kind, target, **environment)`: exit code, output, the lines of standard error that are no log."""
    for name in ("STORAGE_URI", "IGNORE_PATTERNS", "ACCESS_TOKEN", "DATASET_LAYOUT", "DATASET_MAX_ROWS", "DATASET_TEST_FRACTION"):
        monkeypatch.delenv(name, raising=False)

    def call(kind: str, target: Path, **environment: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["trainwright.initializers", kind, "--target", str(target)])
            code = program.main()
        said = capsys.readouterr()
        errors = [line for line in said.err.splitlines() if not line.startswith(("INFO ", "WARNING "))]
        return code, said.out, "\n".join(errors)

    return call


def test_it_says_what_is_ready(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("dataset", tmp_path / "dataset", STORAGE_URI=source)
    assert (code, err) == (0, "")
    assert out.startswith("dataset ready: 2 files layout=prompt-completion train_rows=")
    assert "digest=sha256:" in out


def test_a_second_run_leaves_the_files_alone(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    first = run("dataset", tmp_path / "dataset", STORAGE_URI=source)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")}
    assert run("dataset", tmp_path / "dataset", STORAGE_URI=source) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")} == before


def test_options_come_from_the_environment_and_none_takes_what_there_is(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "dataset"
    options = {"DATASET_MAX_ROWS": "7", "DATASET_TEST_FRACTION": "0", "DATASET_LAYOUT": "prompt-completion"}
    _, said, _ = run("dataset", target, STORAGE_URI=source, **options)
    assert "train_rows=7 test_rows=0" in said
    assert "train_rows=7 test_rows=0" in run("dataset", target, STORAGE_URI=source)[1]
    assert "train_rows=9 test_rows=0" in run("dataset", target, STORAGE_URI=source, **{**options, "DATASET_MAX_ROWS": "9"})[1]


def test_ignore_patterns_are_a_list_with_commas(run, tmp_path: Path, lines: bytes) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "source").mkdir()
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / "source" / name).write_bytes(lines)
    uri = str(StorageUri.of_path(tmp_path / "source"))
    _, said, _ = run("dataset", tmp_path / "x", STORAGE_URI=uri, IGNORE_PATTERNS=" a.*, b.jsonl ,", DATASET_TEST_FRACTION="0")
    assert "train_rows=100 " in said


@pytest.mark.parametrize(
    ("kind", "environment", "code", "message"),
    [
        ("dataset", {}, 2, "STORAGE_URI is not set: name the source in the TrainJob's spec.initializer"),
        ("model", {"STORAGE_URI": ""}, 2, "STORAGE_URI is not set"),
        ("dataset", {"STORAGE_URI": "file:///nothing/here"}, 2, "file:///nothing/here does not exist"),
        ("model", {"STORAGE_URI": "gs://bucket/x"}, 2, "'gs://bucket/x': the scheme 'gs' is not supported yet"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_MAX_ROWS": "-1"}, 2, "DATASET_MAX_ROWS: Input should be greater"),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_MAX_ROWS": "many"},
            2,
            "DATASET_MAX_ROWS: Input should be a valid integer",
        ),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_TEST_FRACTION": "1"},
            2,
            "DATASET_TEST_FRACTION: Input should be less than 1",
        ),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_LAYOUT": "alpaca"}, 2, "has the columns completion, prompt; expected"),
    ],
)
def test_a_source_that_cannot_be_used_is_exit_code_2_and_one_line(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, source: str, kind: str, environment: dict[str, str], code: int, message: str
) -> None:
    environment = {name: source if value == "SOURCE" else value for name, value in environment.items()}
    got, out, err = run(kind, tmp_path / "target", **environment)
    assert (got, out) == (code, "")
    assert message in err
    assert "\n" not in err
    assert not (tmp_path / "target").exists()


def test_trouble_on_the_way_is_exit_code_1(run, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def full(*_: object) -> None:
        raise NoSpace("/workspace: the disk is full")

    monkeypatch.setattr(dataset, "fetch", full)
    assert run("dataset", tmp_path / "target", STORAGE_URI=source) == (1, "", "/workspace: the disk is full")


@pytest.mark.medium
def test_it_runs_as_a_module(tmp_path: Path, source: str) -> None:
    command = [sys.executable, "-m", "trainwright.initializers", "dataset", "--target", str(tmp_path / "dataset")]
    done = subprocess.run(command, env={**os.environ, "STORAGE_URI": source}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dataset ready: 2 files")
    env = {name: value for name, value in os.environ.items() if name != "STORAGE_URI"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
