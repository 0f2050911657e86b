"""The operators of DVC and Ray Data hand over their parameters, also as rendered texts, to the step in the worker or in a pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import task_context
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright import operators
from trainwright.steps.on_cluster import ClusterSteps
from trainwright.steps.requests import PreprocessDataset, PullDvcData, StepRun
from trainwright.workspace import read_run, run_folder

CONTEXT = task_context("t")
errors = OnFirstUse("trainwright.operators.errors")
require_packages("airflow")

RUN = StepRun("airflow/d", "d/r")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps that are asked for in pods."""
    calls: list[Any] = []
    monkeypatch.setattr(ClusterSteps, "__call__", lambda _self, request, run: calls.append((request, run)) or {"digest": "d"})
    return calls


def test_on_the_cluster_a_pod_is_asked(connected: Any, asked: list[Any]) -> None:
    pull = operators.PullDvcDataOperator(task_id="t", repo="https://host/data", path="rows", rev="v1", workspace="pvc://w")
    assert pull.execute(CONTEXT) == {"digest": "d"}
    assert asked == [(PullDvcData(repo="https://host/data", path="rows", rev="v1"), RUN)]
    given = {"columns": '{"prompt": "q"}', "drop_empty": "false", "min_chars": "3", "deduplicate_by": '["prompt"]'}
    operators.PreprocessDatasetOperator(task_id="t", data_uri="file:///w/rows", workspace="pvc://w", **given).execute(CONTEXT)
    parsed: dict[str, Any] = {"columns": {"prompt": "q"}, "drop_empty": False, "min_chars": 3, "deduplicate_by": ["prompt"]}
    assert asked[1] == (PreprocessDataset(data_uri="file:///w/rows", **parsed), RUN)


def test_invalid_input_fails_without_retries(tmp_path: Path) -> None:
    with pytest.raises(errors.NonRetryableError, match="source: required without repo"):
        operators.PullDvcDataOperator(task_id="t", workspace_path=str(tmp_path)).execute(CONTEXT)
    with pytest.raises(errors.NonRetryableError, match="'nothing': no such file or folder"):
        operators.PreprocessDatasetOperator(task_id="t", data_uri="nothing", workspace_path=str(tmp_path)).execute(CONTEXT)
    for wrong in ({"columns": "[1]"}, {"min_chars": "x"}, {"deduplicate": "maybe"}, {"deduplicate_by": "{}x"}):
        (name,) = wrong
        with pytest.raises(errors.NonRetryableError, match=name):
            operators.PreprocessDatasetOperator(task_id="t", data_uri="x", workspace_path=str(tmp_path), **wrong).execute(CONTEXT)  # type: ignore[arg-type]


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_data_goes_from_a_source_through_dvc_and_ray(tmp_path: Path) -> None:
    from trainwright.tools import ToolUnavailable, tool_environment
    from trainwright.tools.dvc_data import dvc_requirements
    from trainwright.tools.ray_preprocess import ray_requirements

    try:
        tool_environment(dvc_requirements(), name="dvc")
        tool_environment(ray_requirements(), name="ray")
    except ToolUnavailable as error:
        pytest.skip(str(error))
    source, workspace = tmp_path / "source.jsonl", tmp_path / "workspace"
    source.write_text("".join(json.dumps({"text": f" row {number % 4} "}) + "\n" for number in range(8)))
    common: dict[str, Any] = {"task_id": "t", "workspace_path": str(workspace)}
    pulled = operators.PullDvcDataOperator(source=str(source), **common).execute(CONTEXT)
    assert pulled["size"] == source.stat().st_size
    done = operators.PreprocessDatasetOperator(data_uri=pulled["data_uri"], **common).execute(CONTEXT)
    assert (done["rows_in"], done["rows_out"]) == (8, 4)
    record = read_run(workspace / run_folder("d/r"))
    assert record is not None
    assert set(record.inputs) >= {"dvc", "preprocessed"}
