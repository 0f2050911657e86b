"""Which TrainJobs the policies of this package apply to: runtimes with their framework label, a plain policy and several nodes.

A runtime that sets the framework's variables itself, as those of migrated jobs do, keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, named
from trainwright.materialize.draft import Draft, PodSet, ancestor_of

TENSORFLOW, PADDLE = "tensorflow", "paddle"
MARKS = {TENSORFLOW: ("TF_CONFIG",), PADDLE: ("PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS")}
"""Variables by which a container that has one of them finds its peers without these policies."""
_OTHER_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def framework_of(runtime: Obj) -> str:
    """Return the framework whose policy applies to a runtime; an empty string for others."""
    framework = labels_of(runtime).get(names.FRAMEWORK_LABEL, "")
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    return framework if framework in MARKS and not any(policy.get(other) is not None for other in _OTHER_POLICIES) else ""


def has_peers_set(framework: str, variables: Collection[str]) -> bool:
    """Whether these names of variables contain one by which the framework finds its peers."""
    return any(mark in variables for mark in MARKS[framework])


def training_container(draft: Draft, framework: str) -> tuple[PodSet, Obj] | None:
    """Return the pods and the container that the policy of a framework changes; None where it does not apply."""
    pods = draft.trainer_pods()
    container = pods.container(names.NODE) if pods is not None else None
    if pods is None or container is None or pods.count < 2 or framework_of(draft.runtime) != framework:
        return None
    if has_peers_set(framework, {variable["name"] for variable in container.get("env") or []}):
        return None
    return pods, container


def process_problems(draft: Draft, framework: str) -> Iterator[Problem]:
    """Yield a problem for a TrainJob that asks for several processes on a node: there is one."""
    processes = (draft.trainer or {}).get("numProcPerNode")
    if framework_of(draft.runtime) == framework and processes not in (None, 1):
        message = f"Invalid value: {processes}: runtimes of {framework} start one process on each node"
        yield Problem("spec.trainer.numProcPerNode", message)


def framework_without_peers(trainjob: Obj, runtime: Obj) -> str:
    """Return the framework of a TrainJob whose nodes would each train alone without the policy of the framework, else "".

    Its pods would all succeed. `trainjob` need not be admitted; runtime patches are not considered.
    """
    framework = framework_of(runtime)
    trainer = trainjob["spec"].get("trainer") or {}
    nodes = trainer.get("numNodes") or (runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1
    if not framework or nodes < 2:
        return ""
    variables = {variable["name"] for variable in [*_variables_of(runtime), *(trainer.get("env") or [])]}
    return "" if has_peers_set(framework, variables) else framework


def _variables_of(runtime: Obj) -> Iterator[Obj]:
    for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []:
        if ancestor_of(job) == names.ANCESTOR_TRAINER:
            container = named(job["template"]["spec"]["template"]["spec"].get("containers"), names.NODE) or {}
            yield from container.get("env") or []
