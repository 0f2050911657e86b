"""`make finetune` refuses what could not succeed in one line and before it starts anything; no shell sees its variables."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from trainwright.quickstart import finetune as finetune_module
from trainwright.quickstart.bundled import QUICKSTART_SETTINGS
from trainwright.quickstart.finetune import Options, _as_uri, _draw, _settings, _with_device, finetune

ROOT = Path(__file__).parents[2]


class Started(Exception):
    """The checks have let it pass."""


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a run with options; returns the exit status and what was said."""

    def no_cluster(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr(finetune_module, "local_cluster", no_cluster)

    def run(**options: Any) -> tuple[int, str]:
        said = io.StringIO()
        status = finetune(Options(runs=tmp_path / "runs", **options), Console(file=said, width=400))
        return status, said.getvalue()

    return run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"settings": '{"steps":'}, "SETTINGS is not valid JSON: line 1, column 10"),
        ({"settings": "[1]"}, "SETTINGS must be a JSON object"),
        ({"settings": '{"stepps": 1}'}, "SETTINGS: stepps: unknown setting; did you mean steps?"),
        ({"settings": '{"learning_rate": NaN}'}, "SETTINGS is not valid JSON"),
        ({"settings": '{"learning_rate": 1e999}'}, "SETTINGS is not valid JSON"),
        ({"settings": '{"steps": 1, "steps": 2}'}, "duplicate key"),
        ({"settings": '{"steps": "many"}'}, "SETTINGS: steps: "),
        ({"settings": "[" * 100_000}, "SETTINGS is not valid JSON"),
        ({"columns": "{"}, "COLUMNS is not valid JSON: "),
        ({"columns": '{"frage": "prompt"}'}, "COLUMNS or LAYOUT: columns: "),
        ({"name": "Ä"}, "NAME='Ä': use at most 40"),
        ({"name": "a\n"}, "use at most 40"),
        ({"name": "[/red]"}, "NAME='[/red]': use at most 40"),
        ({"name": "../x"}, "NAME='../x': use at most 40"),
        ({"dataset": "/nothing/here"}, "DATASET=/nothing/here: no such file or folder"),
        ({"dataset": "ftp://host/x"}, "DATASET: 'ftp://host/x': the scheme 'ftp' is not supported"),
        ({"model": "/etc"}, "MODEL=/etc: expected the folder of a transformers model"),
        ({"model": "hf://"}, "MODEL: 'hf://': expected hf://[datasets/|models/]org/name"),
        ({"export": "file:///dev/null/x"}, "EXPORT=file:///dev/null/x cannot be written to: "),
        ({"export": "/proc/nothing"}, "EXPORT=file:///proc/nothing cannot be written to: "),
        ({"export": "hf://org/name"}, "EXPORT=hf://org/name: expected one of file://, az://, gs://, s3://"),
        ({"export": "file://host/x"}, "EXPORT: 'file://host/x': a file URI needs an absolute path"),
        ({"orchestrator": "argo"}, "ORCHESTRATOR=argo: expected one of kfp, airflow"),
        ({"nodes": 0}, "--nodes 0: expected 1 to 64"),
        ({"model": "~nobody-here/model"}, "~nobody-here/model: "),
    ],
)
def test_invalid_requests_are_refused_in_one_line(attempt: Any, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    status, said = attempt(**options)
    assert status == 2
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_unwritable_export_is_found_without_leaving_a_trace(attempt: Any, tmp_path: Path) -> None:
    with pytest.raises(Started):
        attempt(export=str(tmp_path / "a" / "b"))
    assert not (tmp_path / "a").exists()


def test_the_folder_of_a_run_is_only_its_users(attempt: Any, tmp_path: Path) -> None:
    with pytest.raises(Started):
        attempt(name="mine")
    assert (tmp_path / "runs/mine").stat().st_mode & 0o777 == 0o700
    (tmp_path / "runs/mine").chmod(0o755)
    with pytest.raises(Started):
        attempt(name="mine")
    assert (tmp_path / "runs/mine").stat().st_mode & 0o777 == 0o700


@pytest.mark.medium
@given(
    field=st.sampled_from(["settings", "name", "dataset", "model", "export", "orchestrator"]),
    text=st.text(min_size=1, max_size=30)
    | st.sampled_from(["file://", "s3://", "hf://", "{}", "~", "//", "a" * 5000, "\0", "\udcff"]),
)
def test_property_any_text_is_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, field: str, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    before = os.getcwd()
    os.chdir(folder)  # relative paths
    real = finetune_module.local_cluster

    def no_cluster(*_: object, **__: object) -> None:
        raise Started

    finetune_module.local_cluster = no_cluster  # type: ignore[assignment]
    try:
        said = io.StringIO()
        status = finetune(Options(runs=folder / "runs", **{field: text}), Console(file=said, width=400))  # type: ignore[arg-type]
        assert status == 2
        assert "Traceback" not in said.getvalue()
    except Started:
        pass
    finally:
        finetune_module.local_cluster = real
        os.chdir(before)


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("variable", ["NAME", "MODEL", "DATASET", "EXPORT", "SETTINGS", "ORCHESTRATOR", "KEEP"])
@pytest.mark.parametrize("value", ["$(shell touch {})", "`touch {}`", '"; touch {}; "', "'; touch {}; '", "$$(touch {})"])
def test_no_shell_sees_the_variables(tmp_path: Path, variable: str, value: str) -> None:
    """The program is replaced, so that only make and its shell act."""
    canary, python = tmp_path / "canary", tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf %s "$TRAINWRIGHT_FINETUNE_{variable}" > "{tmp_path}/told"\n')
    python.chmod(0o755)
    text = value.replace("{}", str(canary))
    command = [
        "make",
        "-o",
        ".venv/.ready-quickstart",
        "-o",
        ".venv/.ready-airflow",
        "finetune",
        f"PY={python}",
        f"{variable}={text}",
    ]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert not canary.exists()
    assert (tmp_path / "told").read_text() == text


@pytest.mark.parametrize(
    ("given", "has_gpu", "expected"),
    [
        ('{"steps": 1}', False, {"steps": 1, "cpu": True}),
        ('{"steps": 1}', True, {"steps": 1, "cpu": False}),
        ('{"cpu": false}', False, {"cpu": False}),
    ],
)
def test_settings_of_the_user_run_on_what_there_is(
    monkeypatch: pytest.MonkeyPatch, given: str, has_gpu: bool, expected: dict[str, Any]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: "/usr/bin/nvidia-smi" if has_gpu else None)
    assert json.loads(_with_device(given)) == expected


def test_settings_change_those_that_are_tuned() -> None:
    bundled = json.loads(QUICKSTART_SETTINGS)
    assert json.loads(_settings(Options(Path("runs")))) == bundled
    assert json.loads(_settings(Options(Path("runs"), settings='{"seed": 7}'))) == {**bundled, "seed": 7}
    of_epochs = json.loads(_settings(Options(Path("runs"), settings='{"epochs": 3}')))
    assert of_epochs == {**{name: value for name, value in bundled.items() if name != "steps"}, "epochs": 3}
    own = json.loads(_settings(Options(Path("runs"), dataset="x", settings='{"method": "full"}')))
    assert (own["method"], own["logging_steps"]) == ("full", 1), "a short training logs its loss too"


def test_a_bare_name_is_one_of_the_hub_unless_there_is_such_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _as_uri("org/name") == "hf://org/name"
    (tmp_path / "org/name").mkdir(parents=True)
    assert _as_uri("org/name") == f"file://{tmp_path}/org/name"
    assert _as_uri("./org") == f"file://{tmp_path}/org"


@pytest.mark.medium
def test_without_a_logged_loss_there_is_no_curve_and_no_error(tmp_path: Path) -> None:
    assert _draw([], tmp_path / "curve.png", before=2.0, after=1.0).startswith("none: the training logged no loss")
    assert _draw([{"loss": 1.0, "step": 1}], tmp_path / "curve.png", before=2.0, after=1.0) == str(tmp_path / "curve.png")
