"""The DAG `trainwright_finetune`: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate the model.

It has the same steps as the Kubeflow pipeline `finetune`. Its parameters are set in the trigger form.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.example_dags.chain import add_promotion, add_registration, every_task
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators.finetuning import Chain

with DAG(
    "trainwright_finetune",
    description="Fine-tune a language model with a TrainJob and export its checkpoint.",
    schedule=None,
    catchup=False,
    params=form("FineTuning"),
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = Chain(parameters("FineTuning"), every=every_task())
    chain.add_steps()
    add_promotion(chain)
    add_registration(chain)
    slim(dag)
