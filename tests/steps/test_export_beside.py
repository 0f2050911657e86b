"""Exports beside a training: again and again while it goes on, and the last one when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import trainjob

from trainwright.checkpoints.errors import DivergedCheckpoint, NoCheckpoint
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.steps.export_beside import export_beside
from trainwright.steps.requests import ExportBeside, ExportCheckpoint, StepRequest, StepRun
from trainwright.steps.workspace_steps import HereSteps

REQUEST, RUN = ExportCheckpoint(export_uri="s3://exports"), StepRun("kfp", "r")


@pytest.fixture
def job(cluster: EmbeddedCluster) -> dict[str, Any]:
    return cluster.create(trainjob("job"))


def exporting(cluster: EmbeddedCluster, steps: Any, every_seconds: float = 0.01) -> dict[str, Any]:
    return export_beside(cluster, "job", "default", steps, REQUEST, RUN, every_seconds=every_seconds, poll_seconds=0.01)


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_every_checkpoint_until_the_job_has_ended_and_then_the_last(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Callable[..., Any], end: str
) -> None:
    asked: list[tuple[str, Any]] = []

    def steps(request: StepRequest, _run: StepRun) -> dict[str, Any]:
        asked.append((request.step_name(), getattr(request, "look", None)))
        if len(asked) == 3:
            set_status(job, end)
        return {} if len(asked) == 1 else {"step": len(asked), "uri": "s3://exports/x"}

    assert exporting(cluster, steps)["step"] == 4
    assert asked == [("export-beside", 1), ("export-beside", 2), ("export-beside", 3), ("export-checkpoint", None)]


def test_between_two_exports_is_the_time_that_was_asked_for(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    get, polls = cluster.get, list[int]()

    def counted(*args: Any, **more: Any) -> Any:
        polls.append(len(polls))
        return get(*args, **more)

    monkeypatch.setattr(cluster, "get", counted)

    def steps(request: StepRequest, _run: StepRun) -> dict[str, Any]:
        if isinstance(request, ExportBeside):
            set_status(job, "Complete")
        return {"step": 1, "uri": "u"}

    exporting(cluster, steps, every_seconds=0.05)
    assert len(polls) == 6


def test_a_job_that_is_gone_has_ended(cluster: EmbeddedCluster) -> None:
    assert exporting(cluster, lambda request, _run: {"did": request.step_name()}) == {"did": "export-checkpoint"}


@pytest.mark.parametrize("error", [NoCheckpoint("none yet"), DivergedCheckpoint("loss is nan")])
def test_checkpoint_that_cannot_be_exported_is_an_error_only_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    if isinstance(error, DivergedCheckpoint):
        monkeypatch.setattr("trainwright.steps.workspace_steps.export_run_checkpoint", refuse)
    asked = {"export_uri": f"file://{tmp_path}/exports"}
    assert HereSteps(tmp_path)(ExportBeside(**asked, look=1), RUN) == {}
    with pytest.raises(type(error)):
        HereSteps(tmp_path)(ExportCheckpoint(**asked), RUN)
