"""Submission and waiting as two steps of a user's own pipeline, run by kfp's local runner on an embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from local_pipeline import run_program
from support.fast_training_cluster import running

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import namespace_of
from trainwright.api.phase import Phase, phase_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PIPELINE = """
import sys
from kfp import dsl, local
from trainwright.components import clean_up, submit_train_job, wait_train_job

@dsl.pipeline
def apart(run_id: str):
    cleaning = clean_up(run_id=run_id)
    with dsl.ExitHandler(cleaning):
        submitted = submit_train_job(run_id=run_id, runtime="torch-distributed", command=["python", "-c", sys.argv[2]])
        waited = wait_train_job(trainjob=submitted.output)
        for task in (cleaning, submitted, waited):
            task.set_caching_options(False)

local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[1], raise_on_error=True)
apart(run_id="apart")
"""


def test_steps_run_apart_and_a_second_run_of_the_id_trains_again(tmp_path: Path) -> None:
    with running(tmp_path) as runs:
        program = "print({'loss': 0.5, 'step': 3}, flush=True)"
        for number, count in enumerate(("first", "second"), 1):
            code, printed = run_program(runs, PIPELINE, str(tmp_path / count), program)
            assert code == 0, printed[-6000:]
            jobs = runs.cluster.list(TRAINJOB, "default").items
            assert [(namespace_of(job), phase_of(job)) for job in jobs] == [("default", Phase.Succeeded)] * number
        (outputs,) = (tmp_path / "first").glob("*/wait-train-job/executor_output.json")
        assert '"loss"' in json.dumps(json.loads(outputs.read_text()))
