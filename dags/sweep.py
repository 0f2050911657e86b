"""The DAG `trainwright_sweep`: the same fine-tuning with other settings, one TrainJob for each trial; the best one is exported.

Only so many trials train at once. One that fails does not end the sweep, and one that is hopeless is stopped early.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule

from trainwright.example_dags.chain import add_promotion, every_task
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators import PickTrialOperator, PlanTrialsOperator, StopHopelessTrialsOperator, TrainTrialOperator
from trainwright.operators.finetuning import Chain
from trainwright.steps.chain import SWEEP

PARALLELISM = int(os.environ.get("TRAINWRIGHT_PARALLELISM", "2"))
"""Trials of a run that train at once, read when the DAG is parsed: it cannot be a parameter of a run."""
DEFAULTS = {"retention": "keep=5"}
"""Settings of the evaluation that hold unless the form has others."""
EARLY_STOPPING: dict[str, Any] = {"enabled": True, "min_trials": 3, "start_step": 4, "idle_timeout_seconds": 600}
"""Settings of StopHopelessTrialsOperator with their defaults."""
EARLY_STOP = Param(
    {},
    type=["object", "null"],
    title="Early stop",
    section="Search",
    description='Settings of early stopping by name, see docs/airflow/sweeps.md. Example: {"enabled": false}',
    properties={name: {"type": "boolean" if value is True else "integer"} for name, value in EARLY_STOPPING.items()},
    additionalProperties=False,
)


def train_trials(*, trial: Any, **given: Any) -> Any:
    """Train the trials of a plan, at most PARALLELISM at once. `given` are arguments of TrainJobOperator."""
    return TrainTrialOperator.partial(max_active_tis_per_dagrun=PARALLELISM, **given).expand(trial=trial)


with DAG(
    "trainwright_sweep",
    description="Fine-tune with different settings, and export what is best.",
    schedule=None,
    catchup=False,
    params={**form("Sweep"), "early_stop": EARLY_STOP},
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = Chain({**parameters("Sweep"), "defaults": DEFAULTS}, SWEEP, every=every_task())
    chain.add("initialize-dataset")
    chain.add("initialize-model")
    plan = chain.add("plan-trials", PlanTrialsOperator)
    chain.add("train", train_trials, trial=plan.output)
    pick = chain.add(
        "pick-trial",
        PickTrialOperator,
        trigger_rule=TriggerRule.ALL_DONE,
        outcomes="{{ ti.xcom_pull('train', key='outcome') }}",  # of trials that have failed as well, which return nothing
        trials="{{ ti.xcom_pull('plan-trials') }}",
    )
    stop = StopHopelessTrialsOperator(
        task_id="stop-hopeless-trials",
        trials_task_id="train",
        metric=chain.form["metric"],
        greater_is_better=chain.form["greater_is_better"],
        **{name: f"{{{{ (params.early_stop or {{}}).get('{name}', {value}) }}}}" for name, value in EARLY_STOPPING.items()},
        run_id=chain.output_of("start-run", "run_id"),
        namespace=chain.output_of("start-run", "namespace"),
        conn_id=chain.form["conn_id"],
        **every_task(),
    )
    plan >> stop >> pick
    chain.add("export-checkpoint")
    chain.add("evaluate")
    add_promotion(chain)
    slim(dag)
