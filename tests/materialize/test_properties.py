"""What must hold for every TrainJob and runtime: a pure function of them, whose only failure is a refusal that names fields."""

from __future__ import annotations

from typing import Any

import pytest
from factories import replicated_job, runtime, trainjob
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
amounts = st.sampled_from(["1", "500m", "1.5Gi", 2, "0", "nonsense"])
resources = st.fixed_dictionaries(
    {},
    optional={
        group: st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), amounts, max_size=2)
        for group in ("limits", "requests")
    },
)
variables = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["A", "PET_NNODES", "DMLC_TASK_ID"])}, optional={"value": st.just("1")}),
    max_size=2,
    unique_by=lambda variable: str(variable["name"]),
)
ports = st.lists(st.sampled_from([{"containerPort": 29500}, {"containerPort": 80, "name": "web"}]), max_size=2, unique_by=str)
containers = st.fixed_dictionaries(
    {"name": st.sampled_from(["node", "side"]), "image": st.just("i:1")},
    optional={"resources": resources, "env": variables, "ports": ports, "command": st.just(["tune", "run", "output_dir=/o"])},
)
jobs = st.lists(
    st.builds(
        lambda name, trained, container, more, replicas: replicated_job(
            name, step="trainer" if trained else "", replicas=replicas, pod_spec={"containers": [container, *more]}
        ),
        st.sampled_from(["node", "launcher", "other"]),
        st.booleans(),
        containers,
        st.sampled_from([[], [{"name": "helper", "image": "h:1"}]]),
        st.sampled_from([1, 1, 1, 0, 2]),
    ),
    max_size=3,
    unique_by=lambda job: str(job["name"]),
)
policies = st.sampled_from(
    [None, {}, {"torch": {}}, {"mpi": {"runLauncherAsNode": True}}, {"jax": {}}, {"xgboost": {}}, {"flux": {}}]
)
groups = st.sampled_from([{}, {"coscheduling": {}}, {"volcano": {}, "coscheduling": {}}])
names = st.sampled_from(["rt", "torchtune-llama3.2-1b", "torchtune-llama3.3-70b"])
trainers = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "numNodes": st.integers(0, 4),
        "numProcPerNode": st.integers(1, 4),
        "command": st.sampled_from([["tune", "run"], ["x"], []]),
        "args": st.lists(st.sampled_from(["model.quantize_base=True", "model.lora_attn_modules=[]", "epochs=1"]), max_size=2),
        "env": variables,
        "resourcesPerNode": resources,
        "image": st.sampled_from(["", "j:1"]),
    },
)


@st.composite
def runtimes(draw: st.DrawFn) -> Obj:
    spec: Obj = {"template": {"spec": {"replicatedJobs": draw(jobs)}}, "podGroupPolicy": draw(groups)}
    if (policy := draw(policies)) is not None:
        spec["mlPolicy"] = {"numNodes": draw(st.integers(0, 3)), **policy}
    return {**runtime(draw(names)), "spec": spec}


PROGRESS = Settings(progress=ProgressReports("https://127.0.0.1:1", "PEM"))


def trained_by(trainer: Obj | None, runtime: str, **spec: Any) -> Obj:
    return trainjob(runtime=runtime, **spec, **({} if trainer is None else {"trainer": trainer}))


def build(job: Obj, runtime: Obj, settings: Settings | None = None) -> list[Obj] | None:
    try:
        return materialize(job, runtime, settings=settings)
    except Invalid as refusal:
        problems = refusal.problems
    assert problems
    assert all(problem.field for problem in problems)
    return None


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
