"""How a step of a pipeline ends: what its user reads, where, and that no dead reader of its log changes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.jobs import TrainRequest
from trainwright.jobs.diagnosis.errors import RunTimeout
from trainwright.steps.step_end import explained_end, write_termination_message
from trainwright.storage.errors import StorageError


@pytest.fixture
def message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The termination log, which exists before the container."""
    path = tmp_path / "termination-log"
    path.write_text("of an earlier try")
    monkeypatch.setenv("TRAINWRIGHT_TERMINATION_LOG", str(path))
    return path


@pytest.mark.parametrize(
    ("error", "code"), [(RunTimeout("too long", "run"), 22), (StorageError("full"), 1), (ValueError("no"), 2)]
)
def test_an_expected_error_is_one_line(message: Path, capsys: pytest.CaptureFixture[str], error: Exception, code: int) -> None:
    with pytest.raises(SystemExit) as raised, explained_end():
        raise error
    assert raised.value.code == code
    assert capsys.readouterr().err == f"{error}\n"
    assert message.read_text() == str(error)


def test_invalid_settings_are_one_line_without_the_words_of_pydantic(message: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), explained_end():
        TrainRequest.from_parameters({"num_nodes": -1, "settings": "{"})
    told = capsys.readouterr().err
    assert told.startswith("settings: neither JSON nor YAML: ")
    assert told.endswith("; num_nodes: expected at least 1\n")
    assert message.read_text() == told.rstrip("\n")


def test_a_bug_keeps_its_traceback(message: Path) -> None:
    with pytest.raises(KeyError), explained_end():
        raise KeyError("x")
    assert message.read_text() == "KeyError: 'x'"


def test_a_long_message_is_cut_to_what_the_kubelet_keeps(message: Path) -> None:
    write_termination_message("ü" * 10_000)
    assert len(message.read_bytes()) <= 4096
    assert message.read_text().endswith("ü …")


def test_no_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_TERMINATION_LOG", str(tmp_path / "none"))
    write_termination_message("x")
    assert not (tmp_path / "none").exists()


def test_a_step_whose_log_nobody_reads_ends_and_can_still_say_why(message: Path) -> None:
    program = """
import sys
from trainwright.steps.step_end import explained_end, write_line
sys.stdin.read()
with explained_end():
    try:
        for _ in range(10):
            write_line("x" * 10_000)
    finally:
        write_line("what is written afterwards goes nowhere")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        process.stdin.close()
        assert process.wait(60) == 1
    assert message.read_text() == "the launcher of this step has ended: nobody reads its log"
