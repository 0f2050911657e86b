"""The order of materialization, visible in one place: patches, pod sets, then every policy's phases, then the objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from trainwright.api import names
from trainwright.api.admission import admit
from trainwright.api.defaults import jobset_defaults
from trainwright.api.errors import Invalid, Problem
from trainwright.api.jobset_rules import JOBSET_RULES
from trainwright.api.objects import Obj, copy_of, name_of
from trainwright.api.webhook_rules import Case, broken
from trainwright.materialize.compiled import CompiledRuntime, compiled
from trainwright.materialize.draft import Draft, PodSet, ancestor_of
from trainwright.materialize.keys import Keys, PlaceholderKeys
from trainwright.materialize.patches import patch_problems, patched_template
from trainwright.materialize.plugins import PHASES, guarded, installed_plugins
from trainwright.materialize.policies.coscheduling import CoschedulingPolicy
from trainwright.materialize.policies.flux import FluxPolicy
from trainwright.materialize.policies.jax import JaxPolicy
from trainwright.materialize.policies.jobset import JobSetPolicy
from trainwright.materialize.policies.mpi import MpiPolicy
from trainwright.materialize.policies.plainml import PlainMLPolicy
from trainwright.materialize.policies.progress import ProgressPolicy
from trainwright.materialize.policies.torch import TorchPolicy
from trainwright.materialize.policies.torchtune import TorchTunePolicy
from trainwright.materialize.policies.volcano import VolcanoPolicy
from trainwright.materialize.policies.xgboost import XGBoostPolicy
from trainwright.materialize.policy import BUILD, CHECK, ENFORCE, VALIDATE, Policy
from trainwright.materialize.resources import merged_resources
from trainwright.materialize.settings import Settings

POLICIES: tuple[Policy, ...] = (
    PlainMLPolicy(),
    TorchPolicy(),
    TorchTunePolicy(),
    MpiPolicy(),
    JaxPolicy(),
    XGBoostPolicy(),
    FluxPolicy(),
    CoschedulingPolicy(),
    VolcanoPolicy(),
    ProgressPolicy(),
    JobSetPolicy(),
)
"""In the order in which they run. Plugins come before the last, which writes the JobSet."""
_NAMELESS = "Invalid value: every object is named after the TrainJob; give metadata.name instead"


def materialize(trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None) -> list[Obj]:
    """The objects that Trainer's controller would create for a TrainJob with that runtime.

    Pure: no clock, no network, no environment; the same input gives the same objects in the same order, companions
    before the JobSet; none for a TrainJob that another controller manages. The arguments are not changed.
    `keys` makes the keys of MPI and Flux; without it their Secrets hold a placeholder that opens nothing.
    Raises Invalid with every problem, each with its field path, before anything is built.
    """
    objects = build(admit(trainjob).object, runtime, settings=settings, keys=keys)
    if objects:
        _refuse_what_jobset_would(objects[-1])
    return objects


def build(trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None) -> list[Obj]:
    """As `materialize`, for a TrainJob that has been admitted and a JobSet that will be: without either's admission.

    The TrainJob may be changed.
    """
    if not name_of(trainjob):  # with generateName it gets one when it is created
        raise Invalid.of("TrainJob", "", [Problem("metadata.generateName", _NAMELESS)], "trainer.kubeflow.org")
    if trainjob["spec"]["managedBy"] != names.TRAINJOB_CONTROLLER:
        return []  # somebody else's to build
    ready = compiled(runtime)
    _refuse(trainjob, patch_problems(trainjob, ready.runtime))  # the patched template would mean nothing
    draft = drafted(trainjob, ready, settings or Settings(), keys or PlaceholderKeys())
    _refuse(trainjob, _problems(VALIDATE, draft))
    for phase in ENFORCE:
        _run(phase, draft)
    _refuse(trainjob, _problems(CHECK, draft))
    _run(BUILD, draft)
    return draft.companions


def policy_problems(trainjob: Obj, runtime: Obj) -> list[Problem]:
    """What the policies of its runtime hold against a TrainJob that has been admitted; the arguments are not changed."""
    ready = compiled(runtime)
    if found := list(patch_problems(trainjob, ready.runtime)):
        return found
    return list(_problems(VALIDATE, drafted(copy_of(trainjob), ready, Settings(), PlaceholderKeys())))


def drafted(trainjob: Obj, ready: CompiledRuntime, settings: Settings, keys: Keys) -> Draft:
    """The draft before any policy has touched it. The TrainJob must have been admitted; policies may change it."""
    spec, labels, annotations = patched_template(trainjob, ready)
    policy = (ready.runtime.get("spec") or {}).get("mlPolicy")
    pod_sets = [PodSet(job, ancestor_of(job), _count(job, policy)) for job in spec.get("replicatedJobs") or []]
    draft = Draft(trainjob, ready.runtime, settings, spec, labels, annotations, pod_sets, keys)
    override = (draft.trainer or {}).get("resourcesPerNode")
    if override is not None and policy is not None:  # without a policy they are ignored (Trainer 2.3)
        _merge_resources(draft, override)
    return draft


def _count(job: Obj, policy: Obj | None) -> int:
    """Pods of a replicated job: the policy's nodes for the trainer, else the template's parallelism; at least 1."""
    if ancestor_of(job) == names.ANCESTOR_TRAINER and policy is not None:
        return max(int(policy.get("numNodes") or 1), 1)
    return max(int(job["template"]["spec"].get("parallelism") or 1), 1)


def _merge_resources(draft: Draft, override: Obj) -> None:
    for pods in draft.pod_sets:
        container = pods.container(names.NODE)
        if container is not None and draft.is_trained_by(pods):
            container["resources"] = merged_resources(container.get("resources"), override)


@cache
def _steps() -> dict[str, list[Callable[[Draft], Any]]]:
    own, plugins, last = POLICIES[:-1], installed_plugins(), POLICIES[-1]
    steps: dict[str, list[Callable[[Draft], Any]]] = {}
    for phase in PHASES:
        steps[phase] = [getattr(policy, phase) for policy in own if hasattr(policy, phase)]
        steps[phase] += [guarded(plugin, phase) for plugin in plugins if hasattr(plugin, phase)]
        steps[phase] += [getattr(last, phase)] if hasattr(last, phase) else []
    return steps


def _run(phase: str, draft: Draft) -> None:
    for step in _steps()[phase]:
        step(draft)


def _problems(phase: str, draft: Draft) -> Iterator[Problem]:
    for step in _steps()[phase]:
        yield from step(draft)


def _refuse_what_jobset_would(jobset: Obj) -> None:
    """Its webhook's rules: names that become too long, dependencies. The shape was checked with the runtime and the TrainJob."""
    stored = copy_of(jobset)
    for job in stored["spec"].get("replicatedJobs") or []:
        job.setdefault("replicas", 1)  # the schema's default for a zero that was not sent
    jobset_defaults(stored, None)
    if found := broken(JOBSET_RULES, Case(stored)):
        raise Invalid.of("JobSet", name_of(jobset), found, "jobset.x-k8s.io")


def _refuse(trainjob: Obj, problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise Invalid.of("TrainJob", trainjob["metadata"]["name"], found, "trainer.kubeflow.org")
