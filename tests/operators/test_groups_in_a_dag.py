"""Groups of settings in Airflow itself: templates, results of other tasks, `partial` and `expand` at any depth, and a second run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_programs import run_program
from support.cluster_under_test import embedded

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import connect

pytestmark = pytest.mark.slow
DAG = """
from airflow.sdk import DAG, task

from trainwright.operators import Ending, Limits, Placement, TrainJobOperator

TRAINING = {"runtime": "torch-distributed", "command": ["true"], "wait_for_completion": False}


@task
def seconds(dag_run=None) -> int:
    return dag_run.conf["seconds"]


@task
def team(dag_run=None) -> str:
    return dag_run.conf["teams"][0]


@task
def placements(dag_run=None) -> list:
    return [{"annotations": {"team": team}} for team in dag_run.conf["teams"]]


with DAG("grouped", schedule=None) as dag:
    limits = Limits(run_timeout_seconds=seconds())
    of_team = Placement(annotations={"team": team()}, tolerations=[{"key": "{{ dag_run.conf['teams'][1] }}", "operator": "Exists"}])
    TrainJobOperator(task_id="single", limits=limits, placement=of_team, **TRAINING)
    TrainJobOperator.partial(
        task_id="expanded", limits=limits, ending=Ending(on_cancel="{{ dag_run.conf['on_cancel'] }}"), **TRAINING
    ).expand(placement=placements())
    TrainJobOperator.partial(task_id="by-arguments", limits=limits, **TRAINING).expand_kwargs(
        [{"placement": {"annotations": {"team": "{{ dag_run.conf['teams'][1] }}"}}}, {"placement": of_team}]
    )
"""
RUN = """
import importlib, json, sys
from datetime import UTC, datetime
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils import db
db.initdb()
sys.path.insert(0, sys.argv[1])
import grouped
first = DagSerialization.to_dict(grouped.dag)
found = {"again": DagSerialization.to_dict(importlib.reload(grouped).dag) == first}
found["upstream"] = {each.task_id: sorted(each.upstream_task_ids) for each in grouped.dag.tasks}
found["runs"] = []
for number, conf in enumerate(json.loads(sys.argv[2])):
    run = grouped.dag.test(logical_date=datetime(2026, 1, 1, number, tzinfo=UTC), run_conf=conf)
    found["runs"].append([run.run_id, run.state])
print("FOUND", json.dumps(found))
"""
RUNS = [
    {"seconds": 100, "teams": ["blue", "green"], "on_cancel": "delete"},
    {"seconds": 200, "teams": ["red", "gold", "grey"], "on_cancel": "keep"},
]


def expected_jobs(conf: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Deadline, team, key of its toleration, and `on_cancel` of each task's job."""
    seconds, teams = conf["seconds"], conf["teams"]
    return {
        "single": (seconds, teams[0], teams[1], "suspend"),
        **{f"expanded[{index}]": (seconds, team, "", conf["on_cancel"]) for index, team in enumerate(teams)},
        "by-arguments[0]": (seconds, teams[1], "", "suspend"),
        "by-arguments[1]": (seconds, teams[0], teams[1], "suspend"),
    }


def jobs_of(kubeconfig: Path, run_id: str) -> dict[str, tuple[Any, ...]]:
    """The same as it stands in the jobs of a run."""
    found = {}
    for job in connect(kubeconfig).list(TRAINJOB, "default").items:
        annotations = job["metadata"]["annotations"]
        run, _, step = annotations[names.OWNER_ANNOTATION].rpartition("/")
        if run.endswith(run_id):
            patches = json.dumps(job["spec"].get("runtimePatches", []))
            keys = [team for conf in RUNS for team in conf["teams"] if json.dumps({"key": team})[1:-1] in patches]
            placed = annotations["team"], *(keys or [""])
            found[step] = (job["spec"]["activeDeadlineSeconds"], *placed, annotations[names.ON_CANCEL_ANNOTATION])
    return found


def test_values_of_groups_are_those_of_each_run_and_task(tmp_path: Path) -> None:
    (tmp_path / "grouped.py").write_text(DAG, "utf-8")
    with embedded(tmp_path / "cluster", node=False) as kubeconfig:
        found = run_program(tmp_path, RUN, json.dumps(RUNS), KUBECONFIG=str(kubeconfig))
        assert found["again"], "two parses must give the same serialized DAG, or each parse is a new version of it"
        on_both = ["seconds", "team"]
        assert [found["upstream"][name] for name in ("single", "by-arguments")] == [on_both, on_both]
        assert found["upstream"]["expanded"] == ["placements", "seconds"]
        assert [state for _, state in found["runs"]] == ["success", "success"]
        for (run_id, _), conf in zip(found["runs"], RUNS, strict=True):
            assert jobs_of(kubeconfig, run_id) == expected_jobs(conf)
