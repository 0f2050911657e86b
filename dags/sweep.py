"""The DAG `trainwright_sweep`: the same fine-tuning with other settings, one TrainJob for each trial; the best one is exported.

Only so many trials train at once. One that fails does not end the sweep, and one that is hopeless is stopped early.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule

from trainwright.example_dags.chain import RESULTS, every_task, of_run, promotion, training_chain
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators import PickTrialOperator, PlanTrialsOperator, StopHopelessTrialsOperator, TrainTrialOperator

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
GIVEN = parameters("Sweep")
OF_RUN = of_run(GIVEN, every_task(), RESULTS)


def train_trials(**given: Any) -> Any:
    """Plan the trials, and train them, at most PARALLELISM at once. `given` are arguments of TrainJobOperator."""
    plan = PlanTrialsOperator(
        task_id="plan-trials",
        trials=GIVEN["trials"],
        space=GIVEN["space"],
        max_trials=GIVEN["max_trials"],
        seed=GIVEN["seed"],
        metric=GIVEN["metric"],
        dataset_digest=given["dataset_digest"],
        model_digest=given["model_digest"],
        **OF_RUN,
    )
    return TrainTrialOperator.partial(max_active_tis_per_dagrun=PARALLELISM, **given).expand(trial=plan.output)


with DAG(
    "trainwright_sweep",
    description="Fine-tune with different settings, and export what is best.",
    schedule=None,
    catchup=False,
    params={**form("Sweep"), "early_stop": EARLY_STOP},
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = training_chain(
        {**GIVEN, "defaults": DEFAULTS},
        every=every_task(),
        train=train_trials,
        trained="pick-trial",
        trial_index=RESULTS.of("pick-trial", "index"),
    )
    stop = StopHopelessTrialsOperator(
        task_id="stop-hopeless-trials",
        trials_task_id="train",
        metric=GIVEN["metric"],
        greater_is_better=GIVEN["greater_is_better"],
        **{name: f"{{{{ (params.early_stop or {{}}).get('{name}', {value}) }}}}" for name, value in EARLY_STOPPING.items()},
        run_id=RESULTS.of("start-run", "run_id"),
        namespace=RESULTS.of_run("namespace"),
        conn_id=GIVEN["conn_id"],
        **every_task(),
    )
    pick = PickTrialOperator(
        task_id="pick-trial",
        trigger_rule=TriggerRule.ALL_DONE,
        outcomes="{{ ti.xcom_pull('train', key='outcome') }}",
        trials="{{ ti.xcom_pull('plan-trials') }}",
        metric=GIVEN["metric"],
        greater_is_better=GIVEN["greater_is_better"],
        **OF_RUN,
    )
    plan = dag.get_task("plan-trials")
    chain.start >> [chain.dataset, chain.model] >> plan
    plan >> stop
    [chain.training, stop] >> pick >> chain.export >> chain.evaluation >> promotion(GIVEN)
    slim(dag)
