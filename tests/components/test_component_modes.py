"""The steps that make jobs hand on the mode of submission that they are given."""

from __future__ import annotations

from typing import Any

import pytest
from support.on_first_use import OnFirstUse

import trainwright.cluster
import trainwright.submission
from trainwright.jobs.diagnosis.exit_codes import ExitCode

shipped = OnFirstUse("trainwright.components")

RUN = {"run_id": "r", "workspace": "pvc://w", "metrics": None}
REPORTS = {"summary": None, "loss_curve": None}


@pytest.mark.parametrize(
    ("step", "arguments"),
    [
        ("train", {**RUN, "loss_curve": None, "dataset_uri": "hf://a/b", "model_uri": "hf://a/c"}),
        ("evaluate", {**RUN, **REPORTS, "checkpoint_uri": "file:///x", "checkpoint_digest": "sha256:0"}),
    ],
    ids=["train", "evaluate"],
)
def test_the_mode_reaches_the_connection(
    step: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def connect(*, mode: str) -> None:
        asked.append(mode)
        raise trainwright.cluster.NoCluster("nothing here")

    monkeypatch.setattr(trainwright.submission, "connect_for_jobs", connect)
    for more in ({}, {"placement": {"submission_mode": "jobset"}}, {"run": {"submission_mode": "jobset"}}):
        with pytest.raises(SystemExit) as ended:
            getattr(shipped, step).python_func(**arguments, **more)
        assert ended.value.code == ExitCode.unreachable
        assert "nothing here" in "".join(capsys.readouterr())
    assert asked == ["", "jobset", "jobset"]
