"""The DAG `trainwright_finetune`: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate the model.

It has the same steps as the Kubeflow pipeline `finetune`. Its parameters are set in the trigger form.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.example_dags.chain import every_task, promotion, registration, training_chain
from trainwright.example_dags.form import form, parameters, slim

with DAG(
    "trainwright_finetune",
    description="Fine-tune a language model with a TrainJob and export its checkpoint.",
    schedule=None,
    catchup=False,
    params=form("FineTuning"),
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    given = parameters("FineTuning")
    chain = training_chain(given, every=every_task())
    chain.in_order()
    chain.evaluation >> [promotion(given), registration(given)]
    slim(dag)
