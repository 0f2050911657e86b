"""How a step of a pipeline ends: what its user reads, where, and that no dead reader of its log changes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import train_request
from support.waiting import eventually

from trainwright.jobs.diagnosis.errors import Cancelled, RunTimeout, StepFailed
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.pipeline_runs.local_lines import cause_in
from trainwright.steps.ends import step_end
from trainwright.steps.ends.step_end import explained_end, write_line, write_termination_message
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
        train_request(**{"num_nodes": -1, "settings": "{"})
    told = capsys.readouterr().err
    assert told.startswith("settings: neither JSON nor YAML: ")
    assert told.endswith("; num_nodes: expected at least 1\n")
    assert message.read_text() == told.rstrip("\n")


def test_credentials_are_in_neither_the_message_nor_the_log(message: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = "hf_" + "a" * 34
    write_line(f"metrics go to wandb, project {token}")
    with pytest.raises(SystemExit), explained_end():
        raise ValueError(f"namespace: '{token}' is not a name")
    with pytest.raises(RuntimeError), explained_end():
        raise RuntimeError(f"https://me:{token}@host")
    told = "".join(capsys.readouterr())
    assert "metrics go to wandb, project ***\n" in told
    assert "namespace: '***' is not a name\n" in told
    assert token not in told + message.read_text()


def test_notes_of_an_error_belong_to_its_message(message: Path) -> None:
    error = RunTimeout("too long", "run")
    error.add_note("this server tries nothing again")
    with pytest.raises(SystemExit), explained_end():
        raise error
    assert message.read_text() == "too long\nthis server tries nothing again"


def test_log_of_a_step_ends_with_the_cause(message: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = PodFailure(
        "a-node-0-0", "node", 0, container="node", exit_code=1, lines=("  File x", "ValueError: column x is missing")
    )
    report = FailureReport("default", "a", "u", "FailedJobs", "jobset failed", pods=(pod,), events=("FailedJobs: jobset failed",))
    with pytest.raises(SystemExit), explained_end():
        raise StepFailed(str(report), {}, report)
    cause = "TrainJob default/a failed: pod a-node-0-0 exited 1: ValueError: column x is missing"
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == (cause, cause)
    assert message.read_text("utf-8").startswith(f"{cause}\nFailedJobs: jobset failed\n")
    assert cause_in(lines) == cause, "pipeline run --local"


def test_a_signalled_step_waits_to_be_killed_only_on_a_server(message: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(step_end, "time", SimpleNamespace(sleep=slept.append))  # other threads go on sleeping
    for pod, times in ((None, 0), ("a-pod", 1)):
        monkeypatch.setenv("KFP_POD_NAME", pod) if pod else monkeypatch.delenv("KFP_POD_NAME", raising=False)
        with pytest.raises(SystemExit), explained_end():
            raise Cancelled("stopped; it is suspended")
        with pytest.raises(SystemExit), explained_end():
            raise ValueError("no")
        assert slept == [step_end.MAX_SECONDS] * times
    assert message.read_text() == "no"


@pytest.mark.medium
@pytest.mark.parametrize(("pod", "is_killed"), [({"KFP_POD_NAME": "a-pod"}, True), ({}, False)])
def test_a_step_of_data_ends_by_its_signal_only_in_a_local_run(pod: dict[str, str], is_killed: bool) -> None:
    """On a server it does no more work, and waits for the end of its container."""
    program = """
from trainwright.jobs.diagnosis.errors import StepFailed
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.pipeline_runs.local_lines import cause_in
from trainwright.steps.ends.step_end import explained_end
with explained_end():
    print("begun", flush=True)
    while True:
        print("work", flush=True)
"""
    command = [sys.executable, "-c", program]
    environ = {name: value for name, value in os.environ.items() if name != "KFP_POD_NAME"} | pod
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGTERM)
        os.set_blocking(process.stdout.fileno(), False)
        if is_killed:
            eventually(lambda: not (process.stdout.read() or b""), what="it does nothing any more")
            assert process.poll() is None
            process.kill()
        else:
            eventually(lambda: process.stdout.read() is not None and process.poll() is not None, what="it ends")
        assert process.wait(30) == -(signal.SIGKILL if is_killed else signal.SIGTERM)


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


@pytest.mark.medium
def test_a_step_whose_log_nobody_reads_ends_and_can_still_say_why(message: Path) -> None:
    program = """
import sys
from trainwright.jobs.diagnosis.errors import StepFailed
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.pipeline_runs.local_lines import cause_in
from trainwright.steps.ends.step_end import explained_end, write_line
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
