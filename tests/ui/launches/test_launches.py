"""Tests runs that the page starts: one process each, what it records, and what remains of one that was killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster_under_test import embedded
from support.waiting import eventually

from trainwright.api.errors import AlreadyExists, NotFound
from trainwright.ui.launches.launches import BadLaunch, Launches, LaunchFolder, view_of

PARAMETERS = {"model_uri": "m", "promote": "better"}


def launches(root: Path, started: list[str] | None = None) -> Launches:
    known = started if started is not None else []
    return Launches(root, host="https://one", kubeconfig="/k", start=lambda folder: known.append(folder.run))


def noted(root: Path, *events: tuple[str, dict[str, Any]]) -> Any:
    made = launches(root)
    made.launch("run-1", "team", PARAMETERS)
    folder = LaunchFolder(root, "run-1")
    for kind, facts in events:
        folder.note(kind, **facts)
    return made.get("run-1")


def test_request_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    started: list[str] = []
    launches(tmp_path / "runs", started).launch("run-1", "team", PARAMETERS)
    folder = LaunchFolder(tmp_path / "runs", "run-1")
    request = folder.request()
    assert (request.run, request.namespace, request.parameters, request.kubeconfig) == ("run-1", "team", PARAMETERS, "/k")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / "request.json").stat().st_mode) == 0o600
    assert started == ["run-1"]


def test_second_click_does_not_start_a_second_process(tmp_path: Path) -> None:
    started: list[str] = []
    made = launches(tmp_path, started)
    made.launch("run-1", "team", PARAMETERS)
    with pytest.raises(AlreadyExists):
        made.launch("run-1", "team", PARAMETERS)
    assert started == ["run-1"]


def test_steps_show_how_far_a_run_is(tmp_path: Path) -> None:
    view = noted(
        tmp_path,
        ("started", {}),
        ("begin", {"step": "start"}),
        ("end", {"step": "start", "note": "run x"}),
        ("begin", {"step": "train"}),
    )
    states = {step.name: step.state for step in view.steps}
    assert (states["start"], states["train"], states["export"]) == ("done", "running", "waiting")
    assert "promote" in states
    assert "register" not in states
    assert view.trainjob.startswith("run-1-")


def test_failure_is_shown_with_its_step_and_message(tmp_path: Path) -> None:
    view = noted(tmp_path, ("started", {}), ("begin", {"step": "dataset"}), ("failed", {"step": "dataset", "message": "no rows"}))
    assert (view.state, view.message) == ("failed", "no rows")
    assert next(step.state for step in view.steps if step.name == "dataset") == "failed"


def test_resumed_run_starts_with_waiting_steps(tmp_path: Path) -> None:
    view = noted(
        tmp_path, ("started", {}), ("begin", {"step": "start"}), ("failed", {"step": "start", "message": "x"}), ("started", {})
    )
    assert {step.state for step in view.steps} == {"waiting"}
    assert view.message == ""


def test_process_that_was_killed_is_lost_and_not_running(tmp_path: Path) -> None:
    view = noted(tmp_path, ("started", {}), ("begin", {"step": "train"}))
    assert view.state == "lost"


@pytest.mark.medium
def test_lock_of_a_process_says_that_it_runs(tmp_path: Path) -> None:
    launches(tmp_path).launch("run-1", "team", PARAMETERS)
    folder = LaunchFolder(tmp_path, "run-1")
    program = (
        "import sys, time; from pathlib import Path; from trainwright.ui.launches.launches import LaunchFolder\n"
        "with LaunchFolder(Path(sys.argv[1]), 'run-1').running() as ours: print(ours, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-P", "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert folder.process() == process.pid
        assert view_of(folder).state == "running"
        with folder.running() as ours:
            assert not ours
        started: list[str] = []
        launches(tmp_path, started).resume("run-1")
        assert started == []
        launches(tmp_path).stop("run-1")
        eventually(lambda: process.poll() is not None, 10, "the process to be interrupted")
        assert process.returncode in (-signal.SIGINT, 1, 130)
    finally:
        process.kill()
        process.communicate()
    assert folder.process() is None


def test_records_that_are_cut_off_are_passed_over(tmp_path: Path) -> None:
    noted(tmp_path, ("started", {}), ("begin", {"step": "start"}))
    with open(tmp_path / "run-1" / "events.jsonl", "a", encoding="utf-8") as file:
        file.write('{"type": "end", "st\n[1]\n"x"\n')
    assert launches(tmp_path).get("run-1").steps[0].state == "running"


def test_foreign_folders_do_not_hide_runs(tmp_path: Path) -> None:
    noted(tmp_path, ("started", {}))
    (tmp_path / "bad name").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "request.json").write_text("[]", "utf-8")
    assert [each.run for each in launches(tmp_path).list()] == ["run-1"]
    assert launches(tmp_path / "nothing").list() == []


@given(st.text(max_size=140))
def test_run_ids_never_lead_out_of_the_folder_property(run: str) -> None:
    root = Path("/runs")
    try:
        folder = LaunchFolder(root, run)
    except BadLaunch:
        return
    assert folder.path.parent == root
    assert os.path.normpath(folder.path) == str(folder.path)


def test_unknown_run_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        launches(tmp_path).get("nothing")
    with pytest.raises(BadLaunch):
        launches(tmp_path).get("../x")


@pytest.mark.medium
def test_run_does_not_begin_on_another_cluster_than_that_of_the_page(tmp_path: Path) -> None:
    """The current context of a kubeconfig may change between the start of the page and that of a run."""
    with embedded(tmp_path, node=False) as kubeconfig:
        made = Launches(tmp_path / "runs", host="https://another", kubeconfig=str(kubeconfig))
        made.launch("run-1", "team", PARAMETERS)
        view = eventually(lambda: (found := made.get("run-1")).state == "failed" and found, 60, "the run to fail")
    assert "https://another" in view.message
    assert view.trainjob == ""


@pytest.mark.medium
def test_program_records_why_it_cannot_begin(tmp_path: Path) -> None:
    Launches(tmp_path / "runs", kubeconfig=str(tmp_path / "nothing")).launch("run-1", "team", PARAMETERS)
    folder = LaunchFolder(tmp_path / "runs", "run-1")
    view = eventually(lambda: (found := view_of(folder)).state == "failed" and found, 30, "the run to fail")
    assert "cannot be read" in view.message
    assert json.loads((folder.path / "request.json").read_text("utf-8"))["run"] == "run-1"
