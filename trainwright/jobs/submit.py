"""Submit a TrainJob, or adopt the one that an earlier try of the same step made. Never two for one step."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import AlreadyExists, ApiError, Invalid, Problem
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, uid_of
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.cluster.served_schema import forget_served, served_trainjob
from trainwright.jobs.capacity import check_capacity
from trainwright.jobs.compatibility import check_compatible, steps_of_runtime
from trainwright.jobs.errors import TrainJobNameTaken
from trainwright.jobs.identity import Identity, label_value
from trainwright.jobs.manifest import trainjob_manifest
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.served_form import dropped_fields, served_form
from trainwright.materialize import materialize
from trainwright.runtimes import ResolvedRuntime, resolve_runtime

MOST_GENERATIONS = 100
SUSPENDED_BY_ANNOTATION = "trainwright.dev/suspended-by"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RuntimeChoice:
    """Which runtime a request was resolved to: `found` says where, `steps` those that it has, `warnings` what is odd."""

    kind: str
    name: str
    found: str
    framework: str = ""
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submitted:
    """The TrainJob, whether it was there already (running, suspended or complete), and the runtime that was chosen."""

    trainjob: Obj
    adopted: bool
    generation: int
    runtime: RuntimeChoice
    run_deadline: int | None = None
    """Seconds of the request's deadline where the cluster keeps none: whoever waits keeps it, see `run_to_end`."""

    @property
    def name(self) -> str:
        return name_of(self.trainjob)


def submit_or_adopt(
    cluster: Cluster, request: TrainRequest, identity: Identity, namespace: str, *, stop: threading.Event | None = None
) -> Submitted:
    """The TrainJob for this step of this run, made at most once.

    A job under the step's name with the same wanted spec is adopted: waited for while it runs, resumed when a cancel had
    suspended it, taken as done when it is complete. After one that failed, is being deleted or was superseded (see
    `suspend_job`) the next generation is submitted. Before anything
    is created the runtime is resolved, the objects are built and nodes are looked at, so that a request that cannot work
    fails here. A cluster that has no answer for the moment is asked again for half a minute, unless `stop` is set; a job
    whose making was answered to nobody is found.
    Raises RuntimeNotFound, IncompatibleRuntime, Invalid, ValueError (bad workspace), TrainJobNameTaken.
    """
    asked, cluster = cluster, PatientCluster(cluster, stop=stop)
    runtime, choice = _chosen(cluster, request, namespace)
    ours = _ours(cluster, identity, namespace)
    for generation in range(max(map(_generation, ours), default=1), MOST_GENERATIONS + 1):
        wanted = trainjob_manifest(request, identity, namespace, runtime, generation)
        objects, form = materialize(wanted, runtime), served_form(wanted, served_trainjob(asked, through=cluster))
        existing = next((job for job in ours if name_of(job) == name_of(wanted)), None)
        if existing is None:
            if objects:
                check_capacity(cluster, objects[-1], asked)
            try:
                created = _create(cluster, form.trainjob, asked)
            except AlreadyExists:  # another try of this step was faster, or it is somebody else's
                existing = cluster.get(TRAINJOB, name_of(wanted), namespace)  # NotFound: made and deleted in this moment
            else:
                _check_owner(created, wanted)  # found there after an answer was lost
                _check_digest(created, wanted)
                log.info("trainjob created namespace=%s name=%s step=%s", namespace, name_of(created), identity)
                return Submitted(created, False, generation, choice, form.run_deadline)
        _check_owner(existing, wanted)
        if _is_over(existing):
            log.info("trainjob of generation %d is over name=%s; trying the next", generation, name_of(existing))
            continue
        _check_digest(existing, wanted)
        log.info("trainjob adopted namespace=%s name=%s step=%s", namespace, name_of(existing), identity)
        return Submitted(_resumed(cluster, existing), True, generation, choice, form.run_deadline)
    raise TrainJobNameTaken(f"{identity}: {MOST_GENERATIONS} generations exist and have failed; delete some to go on")


def _create(cluster: Cluster, wanted: Obj, asked: Cluster) -> Obj:
    """Create it, and see to it that it was taken as it is: a cluster drops fields that its version does not know.

    Raises AlreadyExists, and Invalid naming what was dropped; the job is deleted then.
    """
    created = cluster.create(wanted)
    dropped = dropped_fields(wanted, created)
    if not dropped:
        return created
    forget_served(asked)
    cluster.delete(TRAINJOB, name_of(created), created["metadata"]["namespace"], uid=uid_of(created))
    problems = [Problem(field, "this cluster has dropped it: its Trainer is of another version") for field in dropped]
    raise Invalid.of("TrainJob", name_of(wanted), problems, "trainer.kubeflow.org")


def _chosen(cluster: Cluster, request: TrainRequest, namespace: str) -> tuple[Obj, RuntimeChoice]:
    """The runtime and how it was chosen; both are logged. Raises RuntimeNotFound, Invalid."""
    found = find_runtime(cluster, request, namespace)
    choice = RuntimeChoice(
        kind=request.runtime_kind,
        name=name_of(found.runtime),
        found=found.source if request.runtime_kind == "ClusterTrainingRuntime" else f"namespace {namespace}",
        framework=labels_of(found.runtime).get(names.FRAMEWORK_LABEL, ""),
        steps=tuple(steps_of_runtime(found.runtime)),
        warnings=tuple(check_compatible(request, found.runtime)),
    )
    log.info("runtime chosen kind=%s name=%s found=%s steps=%s", choice.kind, choice.name, choice.found, ",".join(choice.steps))
    for warning in choice.warnings:
        log.warning("runtime name=%s %s", choice.name, warning)
    return found.runtime, choice


def find_job(cluster: Cluster, identity: Identity, namespace: str) -> Obj | None:
    """The newest TrainJob of this step of this run, whatever its state; None where there is none. Makes nothing."""
    ours = _ours(cluster, identity, namespace)
    return max(ours, key=_generation, default=None)


def jobs_of_run(cluster: Cluster, run: str, namespace: str) -> list[Obj]:
    """The TrainJobs of all steps of runs of that name, whoever their owners are."""
    return cluster.list(TRAINJOB, namespace, label_selector=f"{names.RUN_LABEL}={label_value(run)}").items


def find_runtime(cluster: Cluster, request: TrainRequest, namespace: str) -> ResolvedRuntime:
    """The runtime that a request names, as the cluster has it. Raises RuntimeNotFound with the names that exist."""

    lookup = runtime_lookup(cluster, namespace)
    ref = {"kind": request.runtime_kind, "name": request.runtime}
    try:
        return resolve_runtime(ref, lookup, bundled=False)
    except Invalid:
        return resolve_runtime(ref, lookup, bundled=False, known=_known_runtimes(cluster, request.runtime_kind, namespace))


def _known_runtimes(cluster: Cluster, kind: str, namespace: str) -> list[str]:
    try:
        namespaced = kind == "TrainingRuntime"
        listing = cluster.list(TRAINING_RUNTIME, namespace) if namespaced else cluster.list(CLUSTER_TRAINING_RUNTIME)
    except ApiError:  # whoever may read one runtime need not be allowed to list them all
        return []
    return [name_of(runtime) for runtime in listing.items]


def _ours(cluster: Cluster, identity: Identity, namespace: str) -> list[Obj]:
    selector = f"{names.RUN_LABEL}={label_value(identity.run)},{names.STEP_LABEL}={label_value(identity.step)}"
    jobs = cluster.list(TRAINJOB, namespace, label_selector=selector).items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(identity)]


def _generation(trainjob: Obj) -> int:
    text = annotations_of(trainjob).get(names.GENERATION_ANNOTATION, "")
    return int(text) if text.isdecimal() else 1


def _is_over(trainjob: Obj) -> bool:
    """Nothing that can be waited for or resumed comes of it."""
    return is_true(trainjob, "Failed") or is_deleting(trainjob) or names.SUPERSEDED_ANNOTATION in annotations_of(trainjob)


def _check_owner(existing: Obj, wanted: Obj) -> None:
    ours, theirs = annotations_of(wanted)[names.OWNER_ANNOTATION], annotations_of(existing).get(names.OWNER_ANNOTATION)
    if ours != theirs:
        raise TrainJobNameTaken(
            f"the TrainJob {name_of(existing)!r} exists and belongs to {theirs or 'somebody else'}, not to {ours}"
        )


def _check_digest(existing: Obj, wanted: Obj) -> None:
    key = names.SPEC_DIGEST_ANNOTATION
    if annotations_of(existing).get(key) != annotations_of(wanted)[key]:
        raise TrainJobNameTaken(
            f"the TrainJob {name_of(existing)!r} of this step was made from another request and has not failed; "
            "delete it, or start a run of another name"
        )


def suspended_by_us(generation: int) -> str:
    """The mark of our own suspension, with the generation that it made: once the spec changes again it holds no more."""
    return f"trainwright@{generation}"


def _resumed(cluster: Cluster, trainjob: Obj) -> Obj:
    """Resume a job that our own cancel had suspended; somebody else's suspension is respected."""
    mark = annotations_of(trainjob).get(SUSPENDED_BY_ANNOTATION)
    if not trainjob["spec"].get("suspend") or mark != suspended_by_us(int(trainjob["metadata"].get("generation") or 0)):
        return trainjob
    patch = {"spec": {"suspend": False}, "metadata": {"annotations": {SUSPENDED_BY_ANNOTATION: None}}}
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])
