"""What must hold for every TrainJob and runtime: a pure function of them, whose only failure is a refusal that names fields."""

from __future__ import annotations

from typing import Any

import pytest
from generated_trainjobs import runtimes, trained_by, trainers
from hypothesis import given, settings
from hypothesis import strategies as st
from support.on_first_use import OnFirstUse

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of
from trainwright.materialize import ProgressReports, Settings, materialize, objects_to_apply

models = OnFirstUse("kubeflow_trainer_api.models")

Obj = dict[str, Any]
GENERATED = 500 if settings.default.max_examples < 1000 else 100_000


PROGRESS = Settings(progress=ProgressReports("https://127.0.0.1:1", "PEM"))


def build(job: Obj, runtime: Obj, settings: Settings | None = None) -> list[Obj] | None:
    try:
        return materialize(job, runtime, settings=settings)
    except Invalid as refusal:
        problems = refusal.problems
    assert problems
    assert all(problem.field for problem in problems)
    return None


@pytest.mark.medium
@given(runtimes(), trainers, st.booleans())
def test_property_materialize_is_pure_and_only_ever_refuses(runtime: Obj, trainer: Obj | None, suspend: bool) -> None:
    job = trained_by(trainer, runtime["metadata"]["name"], suspend=suspend)
    before = copy_of(job), copy_of(runtime)
    built = build(job, runtime, PROGRESS)
    assert (job, runtime) == before
    assert build(copy_of(job), copy_of(runtime), PROGRESS) == built
    if built is None:
        return
    assert [obj["kind"] for obj in built].count("JobSet") == 1
    assert built[-1]["kind"] == "JobSet"
    assert built[-1]["spec"]["suspend"] is suspend
    for obj in built:
        assert obj["metadata"]["namespace"] == "default"
        assert obj["metadata"]["ownerReferences"][0]["name"] == "demo"
    for replicated in built[-1]["spec"].get("replicatedJobs", []):
        spec = replicated["template"]["spec"]
        assert spec["parallelism"] == spec["completions"] >= 0
    assert _shared_parts(built) == []
    assert objects_to_apply(built, job, lambda _wanted: None) == built


@pytest.mark.medium
@given(runtimes(), trainers)
def test_property_patches_that_say_nothing_change_nothing(runtime: Obj, trainer: Obj | None) -> None:
    name = runtime["metadata"]["name"]
    patches = [{"manager": "example.com/a", "trainingRuntimeSpec": {"template": {}}}, {"manager": "example.com/b"}]
    assert build(trained_by(trainer, name, runtimePatches=patches), runtime) == build(trained_by(trainer, name), runtime)


def _shared_parts(value: Any) -> list[Any]:
    """Parts that stand in more than one place: a caller who changes one would change the other, and YAML would show anchors."""
    seen: set[int] = set()
    shared = []
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, dict | list):
            if id(part) in seen:
                shared.append(part)
            seen.add(id(part))
            todo.extend(part.values() if isinstance(part, dict) else part)
    return shared


@pytest.mark.medium
@settings(max_examples=GENERATED)
@given(runtimes(), trainers)
def test_property_what_is_accepted_is_a_jobset_to_the_official_models_and_to_admission(runtime: Obj, trainer: Obj | None) -> None:
    built = build(trained_by(trainer, runtime["metadata"]["name"]), runtime)
    if built is None:
        return
    jobset = admit(copy_of(built[-1])).object
    assert models.JobsetV1alpha2JobSet.from_dict(jobset) is not None
