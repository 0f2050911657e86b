"""The DAG `trainwright_full_pipeline`: the whole chain with a tool for each part, as the Kubeflow pipeline `full_pipeline`.

DVC, Ray Data, a TrainJob, trackers, a store, lm-evaluation-harness, a registry: each tool runs on its embedded default unless an
address is given, and is installed on first use in an environment of its own.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.example_dags.chain import add_promotion, add_registration, every_task
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators import PreprocessDatasetOperator, PullDvcDataOperator
from trainwright.operators.finetuning import Chain
from trainwright.steps.chain import FULL

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
    chain = Chain({**parameters("FullPipeline"), "defaults": DEFAULTS, "preprocesses": True}, FULL, every=every_task())
    chain.add("pull-dvc-data", PullDvcDataOperator)
    chain.add("preprocess-dataset", PreprocessDatasetOperator)
    chain.add_steps()
    add_promotion(chain)
    add_registration(chain)
    slim(dag)
