"""The order of materialization, visible in one place: patches, pod sets, then every policy's phases, then the objects."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.admission import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, copy_of
from trainwright.materialize.draft import Draft, PodSet, ancestor_of
from trainwright.materialize.keys import Keys, PlaceholderKeys
from trainwright.materialize.patches import patch_problems, patched_template
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
from trainwright.materialize.policy import PHASES, Policy, Validates
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


def materialize(trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None) -> list[Obj]:
    """The objects that Trainer's controller would create for a TrainJob with that runtime.

    Pure: no clock, no network, no environment; the same input gives the same objects in the same order, companions
    before the JobSet; none for a TrainJob that another controller manages. The arguments are not changed.
    `keys` makes the keys of MPI and Flux; without it their Secrets hold a placeholder that opens nothing.
    Raises Invalid with every problem, each with its field path, before anything is built.
    """
    trainjob = admit(trainjob).object
    if trainjob["spec"]["managedBy"] != names.TRAINJOB_CONTROLLER:
        return []  # somebody else's to build
    runtime = admit(runtime).object
    if problems := list(patch_problems(trainjob, runtime)):  # the patched template would mean nothing
        raise Invalid.of("TrainJob", trainjob["metadata"]["name"], problems, "trainer.kubeflow.org")
    draft = drafted(trainjob, runtime, settings or Settings(), keys or PlaceholderKeys())
    problems = [problem for policy in POLICIES for problem in _validated(policy, draft)]
    if problems:
        raise Invalid.of("TrainJob", draft.name, problems, "trainer.kubeflow.org")
    for phase in PHASES:
        for policy in POLICIES:
            step = getattr(policy, phase, None)
            if step is not None:
                step(draft)
    admit(draft.companions[-1])  # what JobSet's webhook would refuse later is refused now
    return draft.companions


def drafted(trainjob: Obj, runtime: Obj, settings: Settings, keys: Keys) -> Draft:
    """The draft before any policy has touched it. Both objects must have been admitted."""
    trainjob = copy_of(trainjob)
    spec, labels, annotations = patched_template(trainjob, runtime)
    policy = (runtime.get("spec") or {}).get("mlPolicy")
    pod_sets = []
    for job in spec.get("replicatedJobs") or []:
        pods = PodSet(job, ancestor_of(job), _count(job, policy))
        pod_sets.append(pods)
    draft = Draft(trainjob, runtime, settings, spec, labels, annotations, pod_sets, keys)
    override = (draft.trainer or {}).get("resourcesPerNode")
    if override is not None and draft.ml_policy is not None:  # without a policy they are ignored (Trainer 2.3)
        _merge_resources(draft, override)
    return draft


def _merge_resources(draft: Draft, override: Obj) -> None:
    for pods in draft.pod_sets:
        container = pods.container(names.NODE)
        if container is not None and draft.is_trained_by(pods):
            container["resources"] = merged_resources(container.get("resources"), override)


def _count(job: Obj, policy: Obj | None) -> int:
    """Pods of a replicated job: the policy's nodes for the trainer, else the template's parallelism; at least 1."""
    if ancestor_of(job) == names.ANCESTOR_TRAINER and policy is not None:
        return max(int(policy.get("numNodes") or 1), 1)
    return max(int(job["template"]["spec"].get("parallelism") or 1), 1)


def _validated(policy: Policy, draft: Draft) -> Iterator[Problem]:
    validating: Validates | None = policy if hasattr(policy, "validate") else None  # type: ignore[assignment]
    if validating is not None:
        yield from validating.validate(draft)
