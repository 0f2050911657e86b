"""Submit a TrainJob, or adopt the one that an earlier try of the same step made. Never two for one step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError, Invalid, Problem
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, uid_of
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.cluster.served_schema import forget_served, served_trainjob
from trainwright.cluster.submission_mode import Mode, choice_of
from trainwright.jobs.both_modes import beginning_of
from trainwright.jobs.builtin_trainers import runtime_of
from trainwright.jobs.capacity import check_capacity
from trainwright.jobs.code_package import PackedCode, pack_code
from trainwright.jobs.code_volume import ensure_code, tie_code
from trainwright.jobs.compatibility import check_compatible, steps_of_runtime
from trainwright.jobs.errors import TrainJobNameTaken
from trainwright.jobs.generations import generation_of, is_over, preemptions_until, retire_earlier
from trainwright.jobs.identity import Identity
from trainwright.jobs.manifest import resuming, trainjob_manifest
from trainwright.jobs.preemption import jobs_continued, judged, was_preempted
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.resume import AUTO, has_resume_point, resume_doubts
from trainwright.jobs.run_holder import check_holder, settle_holder
from trainwright.jobs.served_form import dropped_fields, served_form
from trainwright.jobs.workspace import Workspace
from trainwright.jobs.workspace_claim import ensure_claim, tie_claim
from trainwright.materialize import materialize
from trainwright.runtimes import ResolvedRuntime, resolve_runtime

MOST_GENERATIONS = 100
LatestCheckpoint = Callable[[], str]
"""Knows the URI of the run's latest export, "" where it has none: a store is a higher floor's business."""
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
    mode: Mode = Mode.trainjob
    cluster: Cluster | None = None
    """The cluster that was submitted to, in that mode: what the job is to be followed with."""

    @property
    def name(self) -> str:
        return name_of(self.trainjob)


def submit_or_adopt(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    latest_checkpoint: LatestCheckpoint | None = None,
    was: Sequence[Identity] = (),
    stop: threading.Event | None = None,
) -> Submitted:
    """The TrainJob for this step of this run, made at most once.

    A job under the step's name with the same wanted spec is adopted: waited for while it runs, resumed when a cancel had
    suspended it, taken as done when it is complete. After one that failed, is being deleted or was superseded (see
    `suspend_job`) the next generation is submitted, and with `previous_jobs` = delete the ended ones before it are deleted,
    those of what the step `was` before somebody cleared it among them.
    With `resume` = auto a job that is made is told of the export that `latest_checkpoint` knows, for a volume without
    checkpoints. A workspace that asks for a new claim gets it. Before a job is created the runtime is resolved, the objects
    are built and nodes are looked at, so that a request that cannot work fails here. A cluster that has no answer for the
    moment is asked again for half a minute, unless `stop` is set; a job whose making was answered to nobody is found.
    Raises RuntimeNotFound, IncompatibleRuntime, Invalid, ValueError (bad workspace, BadCode), WorkspaceUnfit, TrainJobNameTaken,
    RunFolderTaken.
    """
    code = pack_code(request.code) if request.code else None
    submitted = _submit_or_adopt(cluster, request, identity, namespace, latest_checkpoint, was, stop, code)
    patient = PatientCluster(submitted.cluster or cluster, stop=stop)
    if request.workspace:
        tie_claim(patient, Workspace.parse(request.workspace), identity, submitted.trainjob)
    if code is not None:
        tie_code(patient, submitted.trainjob, code)
    if request.previous_jobs == "delete":
        retire_earlier(patient, submitted.trainjob, (identity, *was))
    return submitted


def _submit_or_adopt(
    given: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    latest_checkpoint: LatestCheckpoint | None,
    was: Sequence[Identity],
    stop: threading.Event | None,
    code: PackedCode | None,
) -> Submitted:
    owners = [str(one) for one in (identity, *was)]
    bundled = choice_of(given).mode is Mode.jobset
    runtime, choice = _chosen(PatientCluster(given, stop=stop), request, namespace, bundled=bundled)
    asked, first, ours, before = beginning_of(given, identity, namespace, stop)
    cluster, mode = PatientCluster(asked, stop=stop), choice_of(asked).mode
    for generation in range(first, MOST_GENERATIONS + 1):
        wanted = trainjob_manifest(request, identity, namespace, runtime, generation, code)
        objects = materialize(wanted, runtime)
        existing = next((job for job in ours if name_of(job) == name_of(wanted)), None)
        if existing is None:
            wanted = _told(wanted, request, runtime, latest_checkpoint)
            if before is not None:
                wanted = _following(wanted, before, cluster, request, runtime)
        form = served_form(wanted, served_trainjob(asked, through=cluster))
        if existing is None:
            if objects:
                check_capacity(cluster, objects[-1], asked)
            if request.workspace:
                check_holder(cluster, wanted, owners)
                ensure_claim(cluster, Workspace.parse(request.workspace), identity, namespace, nodes_of(request, runtime))
            if code is not None:
                ensure_code(cluster, wanted, code)
            try:
                created = _create(cluster, form.trainjob, asked)
            except AlreadyExists:  # another try of this step was faster, or it is somebody else's
                existing = cluster.get(TRAINJOB, name_of(wanted), namespace)  # NotFound: made and deleted in this moment
            else:
                _check_owner(created, wanted)  # found there after an answer was lost
                _check_digest(created, wanted)
                settle_holder(cluster, created, owners)
                log.info("trainjob created namespace=%s name=%s step=%s mode=%s", namespace, name_of(created), identity, mode)
                return Submitted(created, False, generation, choice, form.run_deadline, mode, asked)
        _check_owner(existing, wanted)
        if is_over(existing):
            log.info("trainjob of generation %d is over name=%s; trying the next", generation, name_of(existing))
            before = judged(cluster, existing)  # a try that was killed may not have counted it
            continue
        _check_digest(existing, wanted)
        if not is_finished(existing):  # a try that was killed just after it had created the job has not looked
            settle_holder(cluster, existing, owners)
        log.info("trainjob adopted namespace=%s name=%s step=%s mode=%s", namespace, name_of(existing), identity, mode)
        return Submitted(_resumed(cluster, existing), True, generation, choice, form.run_deadline, mode, asked)
    raise TrainJobNameTaken(f"{identity}: {MOST_GENERATIONS} generations exist and have failed; delete some to go on")


def _told(wanted: Obj, request: TrainRequest, runtime: Obj, latest_checkpoint: LatestCheckpoint | None) -> Obj:
    """The TrainJob told of an export that it may go on from. That is known of this moment, not wanted: the digest stays."""
    for doubt in resume_doubts(runtime, request.resume, generation_of(wanted)):
        log.warning("resume name=%s %s", name_of(wanted), doubt)
    if latest_checkpoint is None or request.resume != AUTO or not has_resume_point(runtime):
        return wanted
    export = latest_checkpoint()
    if export.startswith("s3://") and not _resume_secret(request):
        log.warning(
            "resume name=%s without resume_secret or store_secret its pods cannot read the export %s", name_of(wanted), export
        )
        return wanted
    return resuming(wanted, runtime, export=export, secret=_resume_secret(request))


def _following(wanted: Obj, before: Obj, cluster: Cluster, request: TrainRequest, runtime: Obj) -> Obj:
    """The TrainJob with what it has from the generation before it: preemptions so far, and after one also its checkpoints,
    whatever other beginning is asked for."""
    marks = {}
    if preemptions := preemptions_until(before):
        marks[names.PREEMPTIONS_ANNOTATION] = str(preemptions)
    if was_preempted(before) and request.resume != AUTO and has_resume_point(runtime):
        continues = jobs_continued(cluster, before)
        marks[names.CONTINUES_ANNOTATION] = continues
        wanted = resuming(
            wanted,
            runtime,
            resume=request.resume,
            secret=_resume_secret(request),
            continues=continues,
            workspace=request.workspace,
        )
    metadata = {**wanted["metadata"], "annotations": {**annotations_of(wanted), **marks}}
    return {**wanted, "metadata": metadata}


def _resume_secret(request: TrainRequest) -> str:
    return request.resume_secret or request.store_secret


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


def _chosen(cluster: Cluster, request: TrainRequest, namespace: str, *, bundled: bool) -> tuple[Obj, RuntimeChoice]:
    """The runtime and how it was chosen; both are logged. Raises RuntimeNotFound, Invalid."""
    found = find_runtime(cluster, request, namespace, bundled=bundled)
    choice = RuntimeChoice(
        kind=request.kind_of_runtime,
        name=name_of(found.runtime),
        found=found.source if request.kind_of_runtime == "ClusterTrainingRuntime" else f"namespace {namespace}",
        framework=labels_of(found.runtime).get(names.FRAMEWORK_LABEL, ""),
        steps=tuple(steps_of_runtime(found.runtime)),
        warnings=tuple(check_compatible(request, found.runtime)),
    )
    log.info("runtime chosen kind=%s name=%s found=%s steps=%s", choice.kind, choice.name, choice.found, ",".join(choice.steps))
    for warning in choice.warnings:
        log.warning("runtime name=%s %s", choice.name, warning)
    return found.runtime, choice


def nodes_of(request: TrainRequest, runtime: Obj) -> int:
    """Nodes that train together: those of the request, else the runtime's."""
    given = request.manifest["spec"].get("trainer") or {} if request.manifest is not None else {}
    return request.num_nodes or given.get("numNodes") or int((runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1)


def find_runtime(cluster: Cluster, request: TrainRequest, namespace: str, *, bundled: bool = False) -> ResolvedRuntime:
    """The runtime that a request names, as the cluster has it, or else, where `bundled` may be used, the catalogue.

    Raises RuntimeNotFound with the names that exist, NoSuchTrainer.
    """
    lookup = runtime_lookup(cluster, namespace)
    ref = {"kind": request.kind_of_runtime, "name": runtime_of(request)}
    try:
        return resolve_runtime(ref, lookup, bundled=bundled)
    except Invalid:
        return resolve_runtime(ref, lookup, bundled=bundled, known=_known_runtimes(cluster, request.kind_of_runtime, namespace))


def _known_runtimes(cluster: Cluster, kind: str, namespace: str) -> list[str]:
    try:
        namespaced = kind == "TrainingRuntime"
        listing = cluster.list(TRAINING_RUNTIME, namespace) if namespaced else cluster.list(CLUSTER_TRAINING_RUNTIME)
    except ApiError:  # whoever may read one runtime need not be allowed to list them all
        return []
    return [name_of(runtime) for runtime in listing.items]


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


def _resumed(cluster: Cluster, trainjob: Obj) -> Obj:
    """Resume a job that our own cancel had suspended; somebody else's suspension is respected."""
    mark = annotations_of(trainjob).get(names.SUSPENDED_BY_ANNOTATION)
    if not trainjob["spec"].get("suspend") or mark != names.suspended_by_us(int(trainjob["metadata"].get("generation") or 0)):
        return trainjob
    patch = {"spec": {"suspend": False}, "metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: None}}}
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])
