"""The DAG `trainwright_full_pipeline`: the whole chain with a tool for each part, as the Kubeflow pipeline `full_pipeline`.

DVC, Ray Data, a TrainJob, trackers, a store, lm-evaluation-harness, a registry: each tool runs on its embedded default unless an
address is given, and is installed on first use in an environment of its own.
"""

from __future__ import annotations

from functools import partial

from airflow.sdk import DAG

from trainwright.example_dags.chain import RESULTS, every_task, of_run, promotion, registration, training_chain
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators import PreprocessDatasetOperator, PullDvcDataOperator, TrainJobOperator

DEFAULTS = {"tasks": ["held_out"], "retention": "keep=5"}
"""Settings of the evaluation that hold unless the form has others."""

with DAG(
    "trainwright_full_pipeline",
    description="From versioned data to a registered model: DVC, Ray Data, TrainJob, trackers, lm-eval.",
    schedule=None,
    catchup=False,
    params=form("FullPipeline"),
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    given = parameters("FullPipeline")
    common = of_run(given, every_task(), RESULTS)
    pull = PullDvcDataOperator(
        task_id="pull-dvc-data",
        source=given["source"],
        repo=given["dvc_repo"],
        path=given["dvc_path"],
        rev=given["dvc_rev"],
        **common,
    )
    preprocess = PreprocessDatasetOperator(
        task_id="preprocess-dataset",
        data_uri=RESULTS.of("pull-dvc-data", "data_uri"),
        **common,
    )
    path = RESULTS.of_run("workspace_path")
    chain = training_chain(
        {**given, "dataset_uri": RESULTS.of("preprocess-dataset", "data_uri"), "defaults": DEFAULTS, "preprocesses": True},
        every=every_task(),
        train=partial(TrainJobOperator, tracking=given["tracking"], workspace_path=path),
    )
    chain.start >> pull >> preprocess >> chain.dataset >> chain.training
    chain.start >> chain.model >> chain.training >> chain.export >> chain.evaluation
    chain.evaluation >> [promotion(given), registration(given, workspace_path=path)]
    slim(dag)
