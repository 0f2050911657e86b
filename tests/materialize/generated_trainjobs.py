"""Strategies of hypothesis for trainers and runtimes, valid and invalid ones."""

from __future__ import annotations

from typing import Any

from factories import replicated_job, runtime, trainjob
from hypothesis import strategies as st

Obj = dict[str, Any]
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


def trained_by(trainer: Obj | None, runtime: str, **spec: Any) -> Obj:
    return trainjob(runtime=runtime, **spec, **({} if trainer is None else {"trainer": trainer}))
