"""Who made a TrainJob, from its labels and annotations: a DAG run, a pipeline run, a command, or a person."""

from __future__ import annotations

from typing import TypedDict
from urllib.parse import quote

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, labels_of


class Creator(TypedDict):
    """`kind` is `airflow`, `kfp`, `trainwright` or empty; `path` is that of the run below the address of its orchestrator."""

    kind: str
    name: str
    run: str
    task: str
    path: str


def creator_of(trainjob: Obj) -> Creator:
    """Return who made a job. What labels shorten is taken from annotations where those have it. Pure."""
    labels, owner = labels_of(trainjob), annotations_of(trainjob).get(names.OWNER_ANNOTATION, "")
    if names.DAG_LABEL in labels or owner.startswith("airflow/"):
        return _airflow(labels, owner)
    if names.PIPELINE_RUN_LABEL in labels or owner.startswith("kfp"):
        return _pipeline(labels, owner)
    if owner:
        name, run, task = ([*owner.rsplit("/", 2), "", ""])[:3]
        return Creator(kind="trainwright", name=name, run=run, task=task, path="")
    manager = labels.get(names.MANAGED_BY_LABEL, "")
    return Creator(kind="", name=manager, run="", task="", path="")


def _airflow(labels: dict[str, str], owner: str) -> Creator:
    parts = owner.split("/")
    whole = len(parts) >= 4 and parts[0] == "airflow"
    dag = parts[1] if whole else labels.get(names.DAG_LABEL, "")
    run = "/".join(parts[2:-1]) if whole else labels.get(names.AIRFLOW_RUN_LABEL, "")
    task = labels.get(names.TASK_LABEL, "") or (parts[-1] if whole else "")
    path = f"/dags/{quote(dag, safe='')}/runs/{quote(run, safe='')}" if dag and run else ""
    return Creator(kind="airflow", name=dag, run=run, task=task, path=path)


def _pipeline(labels: dict[str, str], owner: str) -> Creator:
    parts = owner.split("/")
    run = labels.get(names.PIPELINE_RUN_LABEL, "") or (parts[1] if len(parts) > 1 else "")
    name = labels.get(names.PIPELINE_LABEL, "") or "pipeline"
    path = f"/#/runs/details/{quote(run, safe='')}" if run else ""
    return Creator(kind="kfp", name=name, run=run, task=labels.get(names.PIPELINE_TASK_LABEL, ""), path=path)
