"""The DAG `trainwright_sweep`: the same fine-tuning with other settings, one TrainJob for each trial; the best one is exported.

Only so many trials train at once. One that fails does not end the sweep, and one that is hopeless is stopped early.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule

from trainwright.example_dags.chain import PARAMETERS, PROMOTION, every_task, promotion, training_chain, workspace_settings
from trainwright.example_dags.form import form, objects, parameter
from trainwright.operators import PickTrialOperator, PlanTrialsOperator, StopHopelessTrialsOperator, TrainTrialOperator

PARALLELISM = int(os.environ.get("TRAINWRIGHT_PARALLELISM", "2"))
"""Trials of a run that train at once, read when the DAG is parsed: it cannot be a parameter of a run."""
SWEEP = {
    **PARAMETERS,
    "trials": objects('the settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]'),
    "space": Param(
        {},
        type="object",
        description='instead of trials: for each setting its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}',
    ),
    "max_trials": Param(0, type="integer", minimum=0, description="maximum number of trials; 0: all combinations of the values"),
    "seed": Param(0, type="integer", description="of the random choice of trials"),
    "metric": Param("eval_loss", type="string", description="reported value by which trials are compared"),
    "greater_is_better": Param(False, type="boolean", description="whether a greater metric is better"),
    "early_stop": Param(True, type="boolean", description="stop trials that are worse than the median of the others"),
    "min_trials": Param(
        3, type="integer", minimum=1, description="other trials that must have come as far before one is stopped"
    ),
    "start_step": Param(4, type="integer", minimum=1, description="values that a trial must have reported before it is stopped"),
    "early_stop_idle_seconds": Param(
        600,
        type="integer",
        minimum=0,
        description="seconds without a training after which hopeless trials are not stopped any more",
    ),
    **PROMOTION,
    "promote": Param(
        "", type="string", enum=["", "better", "always"], description="when to promote the best trial to champion; empty: never"
    ),
    "retention": Param("keep=5", type="string", description="folders of earlier runs and trials to keep: always, or keep=N"),
}


def train_trials(*, settings: str, **given: Any) -> Any:
    """Plan the trials, and train them, at most PARALLELISM at once. `given` are arguments of TrainJobOperator."""
    plan = PlanTrialsOperator(
        task_id="plan-trials",
        settings=settings,
        trials=parameter("trials"),
        space=parameter("space"),
        max_trials=parameter("max_trials"),
        seed=parameter("seed"),
        metric=parameter("metric"),
        dataset_digest=given["dataset_digest"],
        model_digest=given["model_digest"],
        **workspace_settings(parameter),
    )
    return TrainTrialOperator.partial(max_active_tis_per_dagrun=PARALLELISM, **given).expand(trial=plan.output)


with DAG(
    "trainwright_sweep",
    description="Fine-tune with different settings, and export what is best.",
    schedule=None,
    catchup=False,
    params=form(SWEEP),
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = training_chain(
        parameter, train=train_trials, trained="pick-trial", trial_index="{{ ti.xcom_pull('pick-trial')['index'] }}"
    )
    stop = StopHopelessTrialsOperator(
        task_id="stop-hopeless-trials",
        trials_task_id="train",
        metric=parameter("metric"),
        greater_is_better=parameter("greater_is_better"),
        min_trials=parameter("min_trials"),
        start_step=parameter("start_step"),
        enabled=parameter("early_stop"),
        idle_timeout_seconds=parameter("early_stop_idle_seconds"),
        run_id="{{ ti.xcom_pull('start-run')['run_id'] }}",
        namespace=parameter("namespace"),
        conn_id=parameter("conn_id"),
        **every_task(),
    )
    pick = PickTrialOperator(
        task_id="pick-trial",
        trigger_rule=TriggerRule.ALL_DONE,
        outcomes="{{ ti.xcom_pull('train', key='outcome') }}",
        trials="{{ ti.xcom_pull('plan-trials') }}",
        metric=parameter("metric"),
        greater_is_better=parameter("greater_is_better"),
        **workspace_settings(parameter),
    )
    plan = dag.get_task("plan-trials")
    chain.start >> [chain.dataset, chain.model] >> plan
    plan >> stop
    [chain.training, stop] >> pick >> chain.export >> chain.evaluation >> promotion(parameter)
