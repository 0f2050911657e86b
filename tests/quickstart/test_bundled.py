"""Building the bundled model shows how far it is and how long it takes; the training starts in the variables of its runtime."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from trainwright.pipeline_runs.local_inputs import State
from trainwright.quickstart.bundled import QUICKSTART_SETTINGS, _show_steps
from trainwright.quickstart.finetune import _pod_variables, _variables
from trainwright.quickstart.run_folder import Request
from trainwright.quickstart.terminal import StepsView
from trainwright.runtimes import bundled_runtime


def request(model: str = "") -> Request:
    return Request(orchestrator="kfp", dataset="", model=model, export="", settings=QUICKSTART_SETTINGS, nodes=2)


def test_progress_has_a_line_with_the_time_left_for_each_quarter_without_a_terminal() -> None:
    said = io.StringIO()
    program = "print('loading'); [print(step, 8) for step in range(1, 9)]; raise SystemExit(3)"
    with tempfile.TemporaryFile("w+") as errors:
        assert _show_steps([sys.executable, "-c", program], errors, Console(file=said, width=80)) == 3
    assert [line.split("(")[0].strip() for line in said.getvalue().splitlines() if "%" in line] == [
        "25 %",
        "50 %",
        "75 %",
        "100 %",
    ]
    assert "s left)" in said.getvalue()


def test_steps_without_progress_say_how_long_they_usually_take(tmp_path: Path) -> None:
    said = io.StringIO()
    with StepsView(tmp_path / "log", said, {"evaluate": 7}) as view:
        for step in ("start-run", "evaluate"):
            view.begins(step)
            view.ends(step, State.succeeded, {}, "")
    assert [line.strip() for line in said.getvalue().splitlines() if "..." in line] == [
        "start-run ...",
        "evaluate ... (usually 7 s)",
    ]


@pytest.mark.parametrize(("model", "is_offline"), [("", True), ("file:///models/mine", True), ("hf://org/name", False)])
def test_only_a_training_on_local_files_is_offline(model: str, is_offline: bool) -> None:
    assert ("HF_HUB_OFFLINE" in _variables(request(model))) is is_offline


def test_pods_are_prepared_with_the_home_of_the_runtime() -> None:
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    node = next(job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    homes = [variable["value"] for variable in container["env"] if variable["name"] == "HOME"]
    assert homes == [_pod_variables(request())["HOME"]]
