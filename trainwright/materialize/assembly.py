"""The order of materialization: patches, pod sets, the phases of every policy, and then the objects.

For a TrainJob that has objects already: which of them are applied again, and which changes its JobSet would reject. Source: Trainer's
rules of re-application (reference section 2.19) and JobSet's immutability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, copy_of, name_of
from trainwright.api.rules.defaults import jobset_defaults
from trainwright.api.rules.jobset import JOBSET_RULES
from trainwright.api.rules.problems import AdmissionRequest, violations
from trainwright.materialize.draft import Draft, PodSet, ancestor_of
from trainwright.materialize.keys import Keys, PlaceholderKeys
from trainwright.materialize.plugins import BUILD, CHECK, ENFORCE, PHASES, VALIDATE, Policy, installed_plugins, wrap_phase
from trainwright.materialize.policies.data_cache import DataCachePolicy
from trainwright.materialize.policies.flux import FluxPolicy
from trainwright.materialize.policies.gang_scheduling import CoschedulingPolicy, VolcanoPolicy
from trainwright.materialize.policies.jax import JaxPolicy
from trainwright.materialize.policies.jobset import JobSetPolicy
from trainwright.materialize.policies.mpi import MpiPolicy
from trainwright.materialize.policies.plainml import PlainMLPolicy
from trainwright.materialize.policies.progress import ProgressPolicy
from trainwright.materialize.policies.torch import TorchPolicy
from trainwright.materialize.policies.torchtune import TorchTunePolicy
from trainwright.materialize.policies.xgboost import XGBoostPolicy
from trainwright.materialize.resources import merge_resources
from trainwright.materialize.runtime_template import CompiledRuntime, apply_patches, compile_runtime, patch_problems
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
    DataCachePolicy(),
    JobSetPolicy(),
)
"""In the order in which they run. Plugins run before the last one, which creates the JobSet."""
_NAME_REQUIRED = "Invalid value: every object is named after the TrainJob; give metadata.name instead"
TRAINJOB_STEP = ""
"""Passed to an observer for the first step, which applies the TrainJob's patches and resources to the template."""
Observer = Callable[[str, Draft], None]
"""Called after each step that modifies the draft, with the policy's name; a policy may have several steps."""
Existing = Callable[[Obj], Obj | None]
"""Returns the cluster's object with the same kind, API group, namespace and name, or None."""
_PARTS = ("runtimePatches", "trainer", "initializer")


class _Step(NamedTuple):
    policy: str
    run: Callable[[Draft], Any]


def _ignore(_policy: str, _draft: Draft) -> None:
    """Observe nothing."""


def materialize(trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None) -> list[Obj]:
    """Return the objects that Trainer's controller would create for a TrainJob with this runtime.

    Pure: no clock, network or environment. The same input gives the same objects in the same order, companions before the
    JobSet; an empty list for a TrainJob that another controller manages. The arguments are not modified.
    `keys` generates the keys of MPI, Flux and data caches; without it their Secrets contain an unusable placeholder.
    Raises Invalid with all problems and their field paths before anything is built.
    """
    objects = build(admit(trainjob).object, runtime, settings=settings, keys=keys)
    if objects:
        check_jobset_admission(objects[-1])
    return objects


def build(
    trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None, observe: Observer = _ignore
) -> list[Obj]:
    """Like `materialize`, without admission of the TrainJob, which was admitted, and of the JobSet, which will be.

    Args:
        trainjob: the admitted TrainJob, which may be modified.
        runtime: its runtime.
        settings: whether and where progress is reported.
        keys: generates the keys of MPI, Flux and data caches.
        observe: called with the draft after each step; it may look at the draft and mark values, but not change them.
    """
    if not name_of(trainjob):  # with generateName, the name is set on creation
        raise Invalid.of("TrainJob", "", [Problem("metadata.generateName", _NAME_REQUIRED)], "trainer.kubeflow.org")
    if trainjob["spec"]["managedBy"] != names.TRAINJOB_CONTROLLER:
        return []  # managed by another controller
    compiled = compile_runtime(runtime)
    _raise_if_any(trainjob, patch_problems(trainjob, compiled.runtime))  # the patched template would be meaningless
    draft = create_draft(trainjob, compiled, settings or Settings(), keys or PlaceholderKeys())
    observe(TRAINJOB_STEP, draft)
    _raise_if_any(trainjob, _problems(VALIDATE, draft))
    for phase in ENFORCE:
        _run(phase, draft, observe)
    _raise_if_any(trainjob, _problems(CHECK, draft))
    _run(BUILD, draft, observe)
    return draft.companions


def policy_problems(trainjob: Obj, runtime: Obj) -> list[Problem]:
    """Return the problems that a runtime's policies find in an admitted TrainJob. The arguments are not modified."""
    compiled = compile_runtime(runtime)
    if found := list(patch_problems(trainjob, compiled.runtime)):
        return found
    return list(_problems(VALIDATE, create_draft(copy_of(trainjob), compiled, Settings(), PlaceholderKeys())))


def create_draft(trainjob: Obj, compiled: CompiledRuntime, settings: Settings, keys: Keys) -> Draft:
    """Return the draft before any policy has run. The TrainJob must be admitted; policies may modify it."""
    spec, labels, annotations = apply_patches(trainjob, compiled)
    policy = (compiled.runtime.get("spec") or {}).get("mlPolicy")
    pod_sets = [PodSet(job, ancestor_of(job), _count(job, policy)) for job in spec.get("replicatedJobs") or []]
    draft = Draft(trainjob, compiled.runtime, settings, spec, labels, annotations, pod_sets, keys)
    override = (draft.trainer or {}).get("resourcesPerNode")
    if override is not None and policy is not None:  # without a policy they are ignored (Trainer 2.3)
        _merge_node_resources(draft, override)
    return draft


def _count(job: Obj, policy: Obj | None) -> int:
    """Return the pods of a replicated job: the policy's nodes for the trainer, else the template's parallelism; at least 1."""
    if ancestor_of(job) == names.ANCESTOR_TRAINER and policy is not None:
        return max(int(policy.get("numNodes") or 1), 1)
    return max(int(job["template"]["spec"].get("parallelism") or 1), 1)


def _merge_node_resources(draft: Draft, override: Obj) -> None:
    for pods in draft.pod_sets:
        container = pods.container(names.NODE)
        if container is not None and draft.is_trained_by(pods):
            container["resources"] = merge_resources(container.get("resources"), override)


@cache
def _steps() -> dict[str, list[_Step]]:
    own, plugins, last = POLICIES[:-1], installed_plugins(), POLICIES[-1]
    steps: dict[str, list[_Step]] = {}
    for phase in PHASES:
        steps[phase] = [_Step(policy.name, getattr(policy, phase)) for policy in own if hasattr(policy, phase)]
        steps[phase] += [_Step(plugin.name, wrap_phase(plugin, phase)) for plugin in plugins if hasattr(plugin, phase)]
        steps[phase] += [_Step(last.name, getattr(last, phase))] if hasattr(last, phase) else []
    return steps


def _run(phase: str, draft: Draft, observe: Observer) -> None:
    for step in _steps()[phase]:
        step.run(draft)
        observe(step.policy, draft)


def _problems(phase: str, draft: Draft) -> Iterator[Problem]:
    for step in _steps()[phase]:
        yield from step.run(draft)


def check_jobset_admission(jobset: Obj) -> None:
    """Apply the rules of JobSet's webhook, such as name lengths and dependencies. The schema has been checked already."""
    stored = copy_of(jobset)
    for job in stored["spec"].get("replicatedJobs") or []:
        job.setdefault("replicas", 1)  # the schema's default for a zero that was not sent
    jobset_defaults(stored, None)
    if found := violations(JOBSET_RULES, AdmissionRequest(stored)):
        raise Invalid.of("JobSet", name_of(jobset), found, "jobset.x-k8s.io")


def _raise_if_any(trainjob: Obj, problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise Invalid.of("TrainJob", trainjob["metadata"]["name"], found, "trainer.kubeflow.org")


def objects_to_apply(objects: list[Obj], trainjob: Obj, existing: Existing) -> list[Obj]:
    """Return the objects of a TrainJob to apply now, in order.

    A running JobSet is not updated, nor is the PodGroup of a running TrainJob. Secrets are created once, since changed keys
    would break a running job.
    """
    suspended = bool(trainjob["spec"].get("suspend"))
    return [obj for obj in objects if (found := existing(obj)) is None or _must_apply(obj, found, suspended)]


def _must_apply(obj: Obj, found: Obj, suspended: bool) -> bool:
    if obj["kind"] == "JobSet":
        return suspended or bool(found["spec"].get("suspend"))
    if obj["kind"] == "PodGroup":
        return suspended
    return bool(obj["kind"] != "Secret")


def update_problems(old: Obj, new: Obj, runtime: Obj, *, settings: Settings | None = None) -> Iterator[Problem]:
    """Yield changes of a suspended TrainJob that its JobSet would reject; upstream admits them and then fails forever.

    `runtime` is the one that the TrainJob was built from. Both versions must be admitted. Changes of a running TrainJob are
    not checked, because they are not applied to the JobSet.
    """
    if not (old["spec"].get("suspend") or new["spec"].get("suspend")):
        return
    before, after = _jobset(old, runtime, settings), _jobset(new, runtime, settings)
    if before is None or after is None:
        return
    try:
        admit(admit(after).object, admit(before).object)  # an apply keeps the defaults of the creation
    except Invalid as error:
        changed = [part for part in _PARTS if old["spec"].get(part) != new["spec"].get(part)] or ["suspend"]
        for problem in error.problems:
            reason = f"Forbidden: its existing JobSet rejects this change: {problem}"
            yield Problem(f"spec.{changed[0]}", reason, "FieldValueForbidden")


def _jobset(trainjob: Obj, runtime: Obj, settings: Settings | None) -> Obj | None:
    built = materialize(trainjob, runtime, settings=settings)
    return built[-1] if built else None
