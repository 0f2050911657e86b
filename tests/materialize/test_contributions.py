"""Who set each value: the runtime, the job, a default or a policy; and the objects are exactly those of `materialize`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import orjson
import pytest
from factories import replicated_job, runtime, trainjob
from generated_trainjobs import runtimes, trained_by, trainers
from hypothesis import given
from installed_policies import GREETING
from recorders.trainer_recordings import recordings

from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of
from trainwright.materialize import ProgressReports, Settings, materialize
from trainwright.materialize.contributions import JOB, RUNTIME, materialize_with_contributors

Obj = dict[str, Any]
SETTINGS = Settings(progress=ProgressReports("https://127.0.0.1:1", "PEM"))


def leaves(value: Any, tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and contributor of each value; elements with a name by their name."""
    if isinstance(value, dict) and value:
        assert list(value) == list(tree) or set(value) == set(tree), path
        for key, item in value.items():
            yield from leaves(item, tree[key], f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        assert len(value) == len(tree), path
        for index, item in enumerate(value):
            name = item.get("name", index) if isinstance(item, dict) else index
            yield from leaves(item, tree[index], f"{path}[{name}]")
    else:
        assert isinstance(tree, str), path
        yield path, tree


def contributors(job: Obj, rt: Obj, kind: str = "JobSet", settings: Settings | None = None) -> dict[str, str]:
    found = materialize_with_contributors(job, rt, settings=settings)
    chosen = next(each for each in found if each.object["kind"] == kind)
    return dict(leaves(chosen.object, chosen.contributors))


NODE = "spec.replicatedJobs[node].template.spec"
CONTAINER = f"{NODE}.template.spec.containers[node]"


def test_values_of_the_trainer_are_the_jobs() -> None:
    trainer = {
        "image": "mine:1",
        "command": ["python", "a.py"],
        "numNodes": 3,
        "env": [
            {"name": "LR", "value": "1"},
            {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
        "resourcesPerNode": {"limits": {"cpu": "4000m"}},
    }
    found = contributors(trainjob(trainer=trainer, suspend=True), runtime(policy={"torch": {}}))
    for path in (
        f"{CONTAINER}.image",
        f"{CONTAINER}.command[1]",
        f"{CONTAINER}.env[LR].value",
        f"{CONTAINER}.env[T].valueFrom.secretKeyRef.optional",
        f"{CONTAINER}.resources.limits.cpu",
        f"{NODE}.parallelism",
        f"{NODE}.completions",
        "spec.suspend",
    ):
        assert found[path] == JOB, path
    assert found[f"{CONTAINER}.env[PET_NNODES].value"] == "torch"
    assert found[f"{CONTAINER}.ports[0].containerPort"] == "torch"


def test_patches_are_the_jobs_and_do_not_shift_their_neighbours() -> None:
    env = [{"name": "B", "value": "1"}, {"name": "C", "value": "2"}]
    spec = {
        "containers": [{"name": "node", "image": "i"}, {"name": "side", "image": "s", "env": env}],
        "nodeSelector": {"a": "b"},
    }
    rt = runtime("rt", replicated_job(step="trainer", pod_spec=spec))
    side = {"name": "side", "env": [{"name": "A", "value": "0"}, {"name": "C", "value": "3"}]}
    pod = {"containers": [side], "nodeSelector": {"c": "d"}, "volumes": [{"name": "v", "emptyDir": {}}]}
    patched = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    patch = {
        "manager": "example.com/a",
        "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"x": "y"}}, "spec": patched}},
    }
    found = contributors(trainjob(runtimePatches=[patch]), rt)
    where = f"{NODE}.template.spec"
    assert found[f"{where}.containers[side].env[A].value"] == JOB
    assert found[f"{where}.containers[side].env[B].value"] == RUNTIME
    assert found[f"{where}.containers[side].env[C].name"] == RUNTIME
    assert found[f"{where}.containers[side].env[C].value"] == JOB
    assert found[f"{where}.nodeSelector.a"] == RUNTIME
    assert found[f"{where}.nodeSelector.c"] == JOB
    assert found[f"{where}.volumes[v].emptyDir"] == JOB
    assert found["metadata.labels.x"] == JOB
    assert found["metadata.name"] == "jobset"


def test_objects_of_policies_are_theirs() -> None:
    rt = runtime(policy={"torch": {}}, podGroupPolicy={"coscheduling": {}})
    assert contributors(trainjob(), rt, "PodGroup")["spec.minMember"] == "coscheduling"
    assert contributors(trainjob(), rt, "ConfigMap", SETTINGS)["data.ca.crt"] == "trainjobstatus"
    found = contributors(trainjob(), rt, settings=SETTINGS)
    assert found[f"{CONTAINER}.volumeMounts[kubeflow-trainer-token].mountPath"] == "trainjobstatus"


def test_a_plugin_is_named(installed: list[EntryPoint]) -> None:
    installed.append(GREETING)
    found = contributors(trainjob(trainer={"env": [{"name": "A", "value": "1"}]}), runtime(policy={"torch": {}}))
    assert found[f"{CONTAINER}.env[GREETING].value"] == "greeting"
    assert found[f"{CONTAINER}.env[A].value"] == JOB


def test_a_job_of_another_manager_has_no_objects() -> None:
    assert materialize_with_contributors(trainjob(managedBy="kueue.x-k8s.io/multikueue"), runtime()) == []


def assert_same(job: Obj, rt: Obj, settings: Settings | None) -> None:
    before = copy_of(job), copy_of(rt)
    try:
        expected = materialize(job, rt, settings=settings)
    except Invalid as error:
        expected_message = str(error)
        with pytest.raises(Invalid) as caught:
            materialize_with_contributors(job, rt, settings=settings)
        assert caught.value.args[0] == expected_message
        return
    found = materialize_with_contributors(job, rt, settings=settings)
    assert (job, rt) == before
    assert orjson.dumps([each.object for each in found]) == orjson.dumps(expected)
    assert orjson.dumps(materialize(job, rt, settings=settings)) == orjson.dumps(expected)
    for each in found:
        assert all(name for _, name in leaves(each.object, each.contributors))


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "settings"), [("cases", None), ("cases-status", SETTINGS)])
def test_recorded_cases_give_the_same_bytes_as_materialize(kind: str, settings: Settings | None) -> None:
    compared = 0
    for case in recordings(kind):
        try:
            job, rt = case.trainjob_and_runtime()
        except (Invalid, IndexError):
            continue
        assert_same(job, rt, settings)
        compared += 1
    assert compared >= 20


@pytest.mark.medium
@given(runtimes(), trainers)
def test_property_contributions_give_the_same_bytes_as_materialize(runtime: Obj, trainer: Obj | None) -> None:
    assert_same(trained_by(trainer, runtime["metadata"]["name"]), runtime, SETTINGS)
