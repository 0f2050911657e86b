"""Submission and waiting as two steps of a user's own pipeline, run on this machine, with an embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.fast_training_cluster import running
from support.local_pipeline import run_here

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import namespace_of
from trainwright.api.phase import Phase, phase_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PIPELINE = """
from kfp import dsl
from trainwright.components import clean_up, submit_train_job, wait_train_job

@dsl.pipeline
def apart(run_id: str):
    cleaning = clean_up(run_id=run_id)
    with dsl.ExitHandler(cleaning):
        command = ["python", "-c", "print({'loss': 0.5, 'step': 3}, flush=True)"]
        submitted = submit_train_job(run_id=run_id, runtime="torch-distributed", command=command)
        wait_train_job(trainjob=submitted.output)
"""


def test_steps_run_apart_and_a_second_run_of_the_id_trains_again(tmp_path: Path) -> None:
    file = tmp_path / "apart.py"
    file.write_text(PIPELINE, "utf-8")
    with running(tmp_path) as runs:
        for number, count in enumerate(("first", "second"), 1):
            ended, printed = run_here(str(file), {"run_id": "apart"}, tmp_path / count, tmp_path / "home/kubeconfig")
            assert ended.state == "SUCCEEDED", printed[-6000:]
            jobs = runs.cluster.list(TRAINJOB, "default").items
            assert [(namespace_of(job), phase_of(job)) for job in jobs] == [("default", Phase.Succeeded)] * number
        (outputs,) = (tmp_path / "first").glob("*/wait-train-job/executor_output.json")
        assert '"loss"' in json.dumps(json.loads(outputs.read_text()))
