"""The same trainings as steps of Kubeflow Pipelines, on this machine or a host, and as tasks of Airflow."""

from __future__ import annotations

import json

from acceptance.checks import ends, file_has, job_is, says
from acceptance.scene import Action, Scene
from acceptance.scenes.fine_tuning import make_sources
from acceptance.stage import Stage
from acceptance.told import Told
from trainwright.quickstart.airflow_dag import configure

# A function on two nodes, then a folder of code, then a loop over two words.
PIPELINE = """
from kfp import dsl
from trainwright.components import train, train_function, trainwright_exit_handler

OWN = dict(runtime="torch-distributed", placement={"runtime_kind": "RUNTIME_KIND"}, image="{launcher}")


@train_function(num_nodes=2)
def fit(steps: int):
    return {"steps": steps, "word": "function"}


@dsl.pipeline(name="{name}")
def pipeline(run: str = dsl.PIPELINE_JOB_ID_PLACEHOLDER):
    with trainwright_exit_handler():
        first = fit(run_id=run, steps=3, **OWN)
        second = train(run_id=run, command=["python3", "-c", "print('the second training')"], **OWN).after(first)
        with dsl.ParallelFor(["one", "two"]) as word:
            command = ["python3", "-c", "import os; print('looped over', os.environ['WORD'])"]
            train(run_id=run, command=command, env={"WORD": word}, **OWN).after(second)
"""
RUN_DAG = "import sys\nfrom trainwright.quickstart.airflow_dag import main\nsys.exit(main())\n"
NAMESPACED, SHARED = "TrainingRuntime", "ClusterTrainingRuntime"
DAG = """
import sys
from datetime import UTC, datetime
from airflow.sdk import DAG, task
from airflow.utils import db
from trainwright.operators import TrainJobOperator

OWN = dict(runtime="torch-distributed", runtime_kind="TrainingRuntime", image="{launcher}", deferrable=DEFERRABLE)
with DAG("{name}", schedule=None) as dag:
    @task.trainjob(num_nodes=2, run_id="{name}", **OWN)
    def fit(steps: int):
        return {"steps": steps, "word": "function"}

    second = TrainJobOperator(
        task_id="second", run_id="{name}", command=["python3", "-c", "print('the second training')"], **OWN
    )
    looped = TrainJobOperator.partial(
        task_id="looped", run_id="{name}", command=["python3", "-c", "import os; print('looped over', os.environ['WORD'])"], **OWN
    ).expand(env=[{"WORD": "one"}, {"WORD": "two"}])
    fit(3) >> second >> looped

if __name__ == "__main__":
    db.initdb()
    run = dag.test(logical_date=datetime.now(UTC))
    for one in run.get_task_instances():
        print(one.task_id, one.map_index, one.state)
    sys.exit(str(run.state) not in ("success", "DagRunState.SUCCESS"))
"""


def _pipeline(kind: str, *where: str) -> Action:
    def act(stage: Stage) -> Told:
        stage.write("pipeline.py", stage.text(PIPELINE).replace("RUNTIME_KIND", kind))
        host = [word.replace("HOST", stage.admin.options.kfp_host) for word in where]
        param = () if host[:1] == ["--host"] else ("--param", "run={name}")
        return stage.trainwright("pipeline", "run", "{folder}/pipeline.py:pipeline", *param, *host, seconds=1500)

    return act


def _finetune_by_host(stage: Stage) -> Told:
    """The shipped pipeline, with a claim that it creates and sources of the Hub."""
    settings = {"steps": 5, "batch_size": 2, "max_length": 64, "cpu": True}
    values = {
        "dataset_uri": "hf://tatsu-lab/alpaca",
        "model_uri": "hf://trl-internal-testing/tiny-Qwen2ForCausalLM-2.5",
        "export_uri": "file:///trainwright-workspace/exports",
        "workspace": f"pvc://{stage.name}?size=2Gi&access={stage.admin.options.access_mode}",
        "num_nodes": 1,
        "training": {"settings": settings},
    }
    stage.write("values.json", json.dumps(values))
    words = ("--params", "{folder}/values.json", "--host", stage.admin.options.kfp_host, "--wait")
    return stage.trainwright("pipeline", "run", "finetune", *words, seconds=1700)


def _dag(deferrable: bool) -> Action:
    def act(stage: Stage) -> Told:
        env = configure(stage.folder / "airflow") | {"AIRFLOW__CORE__DAGS_FOLDER": str(stage.folder)}
        return stage.python(DAG.replace("DEFERRABLE", str(deferrable)), **env)

    return act


def _finetune_dag(stage: Stage) -> Told:
    """The shipped DAG: Airflow runs here, its steps in pods of the cluster."""
    make_sources(stage)
    settings = {"steps": 5, "batch_size": 2, "max_length": 64, "lora_rank": 4, "save_steps": 5, "cpu": True}
    run = {"run_id": stage.name, "namespace": stage.namespace, "runs_on": "cluster"}
    values = {
        "workspace": "pvc://workspace",
        "dataset_uri": "pvc://workspace/sources/rows.jsonl",
        "model_uri": "pvc://workspace/sources/model",
        "export_uri": "file:///trainwright-workspace/exports",
        "num_nodes": 1,
        "training": {**run, "settings": settings, "num_proc_per_node": 1, "env": {"HF_HUB_OFFLINE": "1"}},
    }
    return stage.python(RUN_DAG, "finetune", json.dumps(values), seconds=1500, **configure(stage.folder / "airflow"))


SCENES = [
    Scene(
        "a pipeline on this machine",
        _pipeline(NAMESPACED, "--local"),
        (ends(0), says("the second training", "looped over one", "looped over two"), job_is("Complete", jobs=4)),
    ),
    Scene(
        "a pipeline on a host",
        _pipeline(SHARED, "--host", "HOST", "--wait"),
        ends(0),
        marks=("long",),
        needs=("a KFP host", "shared runtimes"),
    ),
    Scene(
        "fine-tuning on a host", _finetune_by_host, ends(0), marks=("long",), needs=("a KFP host", "shared runtimes", "the Hub")
    ),
    Scene(
        "a DAG",
        _dag(deferrable=False),
        (ends(0), says("the second training", "looped over one", "looped over two"), job_is("Complete", jobs=4)),
        needs=("Airflow",),
    ),
    Scene(
        "a DAG that defers",
        _dag(deferrable=True),
        (ends(0), job_is("Complete", jobs=4)),
        needs=("Airflow",),
    ),
    Scene(
        "fine-tuning by a DAG",
        _finetune_dag,
        (ends(0), file_has("runs/{name}/evaluation/*/result.json", "perplexity")),
        marks=("long",),
        needs=("Airflow", "shared runtimes"),
    ),
]
