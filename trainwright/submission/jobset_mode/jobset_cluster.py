"""A `Cluster` that stores every TrainJob as a JobSet, so that callers submit, follow, suspend and delete TrainJobs as usual.

Other kinds are passed through.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Unpack

from trainwright.api import names
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Problem,
)
from trainwright.api.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    DEFINITION,
    JOBSET,
    TRAINER,
    TRAINING_RUNTIME,
    TRAINJOB,
    Kind,
    kind_of,
)
from trainwright.api.objects import (
    Obj,
    annotations_of,
    controller_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from trainwright.api.patching.json_patch import difference
from trainwright.api.times import now
from trainwright.cluster.protocol import (
    Cluster,
    CreateOptions,
    DeleteOptions,
    FieldValidation,
    Listing,
    ListOptions,
    OnWarning,
    PatchOptions,
    WatchEvent,
    WatchOptions,
)
from trainwright.cluster.retrying import RetryingCluster
from trainwright.materialize import RandomKeys
from trainwright.materialize.keys import Keys
from trainwright.runtimes.bundled import FOLDERS
from trainwright.submission.jobs_client import Built, JobsClient, Mode
from trainwright.submission.jobset_mode.companions import CompanionCreator
from trainwright.submission.jobset_mode.conversion import (
    awaits_companions,
    build_jobset,
    carries_trainjob,
    jobset_patch,
    resumes,
    trainjob_definition,
    trainjob_of,
)
from trainwright.submission.runtime_lookup import resolve_in_cluster

_RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
_JOBSET_MODE_SELECTOR = f"{names.SOURCE_KIND_LABEL}=TrainJob"
log = logging.getLogger(__name__)


class JobSetCluster(JobsClient):
    """Implements `Cluster` on another one. `served` are the resources of Trainer's API that it serves, if any."""

    mode = Mode.jobset
    job_kind = JOBSET
    uses_bundled_runtimes = True
    builder = "which the client submits in its place"

    def __init__(self, cluster: Cluster, *, served: frozenset[str] = frozenset(), default_namespace: str = "default"):
        super().__init__(cluster, default_namespace=default_namespace)
        self._served = served

    @property
    def _companion_creator(self) -> CompanionCreator:
        return CompanionCreator(self._cluster, self._build)

    def why_no_plugins(self, namespace: str) -> str:
        return ""

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        if kind == TRAINJOB:
            return trainjob_of(self._jobset(name, namespace))
        if kind.plural == DEFINITION.plural and name == TRAINJOB.resource:
            return trainjob_definition()
        try:
            return self._serving(kind).get(kind, name, namespace)
        except Forbidden as error:  # an optional right
            if kind not in _RUNTIMES:
                raise
            log.warning("event=runtime_not_readable name=%s error=%s: a bundled one is used if there is one", name, error.message)
            raise NotFound(f"{error.message}; in jobset mode bundled runtimes are then used") from error

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        if kind != TRAINJOB:
            return self._serving(kind).list(kind, namespace, **options)
        options["label_selector"] = _with_jobset_mode_selector(options.get("label_selector", ""))
        found = self._cluster.list(JOBSET, namespace, **options)
        return Listing([job for jobset in found.items if (job := _view(jobset)) is not None], found.resource_version)

    def pages(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Iterator[Listing]:
        if kind != TRAINJOB or (pages := getattr(self._cluster, "pages", None)) is None:
            yield self.list(kind, namespace, **options)
            return
        options["label_selector"] = _with_jobset_mode_selector(options.get("label_selector", ""))
        for page in pages(JOBSET, namespace, **options):
            yield Listing([job for jobset in page.items if (job := _view(jobset)) is not None], page.resource_version)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        if kind != TRAINJOB:
            return self._serving(kind).watch(kind, namespace, **options)
        options["label_selector"] = _with_jobset_mode_selector(options.get("label_selector", ""))
        return _view_events(self._cluster.watch(JOBSET, namespace, **options))

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object; for a TrainJob its JobSet and companions.

        The fields of a TrainJob are validated here, those of its JobSet by the server, with a warning for a field that it does
        not have. Raises RuntimeNotFound, and Invalid if the TrainJob would be rejected.
        """
        kind = kind_of(obj)
        if kind != TRAINJOB:
            return self._serving(kind).create(obj, **options)
        strictness = options.pop("field_validation", "Strict")
        return self.submit(self._build(self._admitted(obj, strictness, options.get("on_warning"))), **options)

    def build(self, trainjob: Obj, sent: Obj, runtime: Obj, *, keys: Keys | None = None) -> Built:
        """Build the JobSet and companions of a TrainJob, with random keys unless others are given.

        Raises Invalid if the TrainJob would be rejected.
        """
        return self._build(self._admitted(sent), runtime, keys)

    def dry_run(self, trainjob: Obj, runtime: Obj, *, strictness: FieldValidation, on_warning: OnWarning) -> Obj:
        built = self._build(self._admitted(trainjob, strictness, on_warning), runtime)
        return RetryingCluster(self).with_retries(lambda: self.submit(built, dry_run=True, on_warning=on_warning))

    def submit(self, built: Built, **options: Unpack[CreateOptions]) -> Obj:
        """Create the objects of `build`; returns the TrainJob. Raises Invalid if a foreign object has the same name."""
        assert built.jobset is not None, "built here"
        self.check_name(built.trainjob)
        if options.get("dry_run"):
            return trainjob_of(self._cluster.create(built.jobset, **options))
        try:
            jobset = self._cluster.create(built.jobset, **options)
        except AlreadyExists:  # by an earlier attempt, which may have ended before the companions
            self._complete_existing(built.trainjob)
            raise
        return trainjob_of(self._companion_creator.complete(jobset, built))

    def update(self, obj: Obj) -> Obj:
        """Replace an object; a TrainJob is patched with the differences. Raises Conflict if its version is stale."""
        kind = kind_of(obj)
        if kind != TRAINJOB:
            return self._serving(kind).update(obj)
        current = self.get(TRAINJOB, name_of(obj), namespace_of(obj))
        change = difference(_writable(current), _writable(obj))
        if version := obj["metadata"].get("resourceVersion"):
            change.setdefault("metadata", {})["resourceVersion"] = version
        return self.patch(TRAINJOB, name_of(obj), change, namespace_of(obj))

    def update_status(self, obj: Obj) -> Obj:
        if kind_of(obj) == TRAINJOB:
            raise _no_status()
        return self._cluster.update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Patch an object; a TrainJob's labels, annotations and `suspend`, by merge patch. Raises Invalid for other fields."""
        if kind != TRAINJOB:
            return self._serving(kind).patch(kind, name, _with_jobset_owners(patch), namespace, **options)
        if options.get("subresource") is not None:
            raise _no_status()
        if options.get("patch_type", "merge") != "merge":
            raise MethodNotAllowed("in jobset mode TrainJobs take merge patches only")
        change = jobset_patch(name, patch)
        jobset = self._jobset(name, namespace)
        if resumes(change):
            self._companion_creator.make_companions(jobset)
            if awaits_companions(jobset):
                annotations = change.setdefault("metadata", {}).setdefault("annotations", {})
                annotations[names.COMPANIONS_CREATED_ANNOTATION] = "2"
        return trainjob_of(self._cluster.patch(JOBSET, name, change, namespace, **options))

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        if kind != TRAINJOB:
            self._serving(kind).delete(kind, name, namespace, **options)
            return
        # A JobSet that does not represent a TrainJob counts as not found.
        options["uid"] = options.get("uid") or uid_of(self._jobset(name, namespace))
        self._cluster.delete(JOBSET, name, namespace, **options)

    def _jobset(self, name: str, namespace: str | None) -> Obj:
        """Return the JobSet of a TrainJob. Raises NotFound, also for a JobSet that does not represent a TrainJob."""
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:
            jobset = None
        if jobset is None or not carries_trainjob(jobset):
            details = {"name": name, "group": TRAINJOB.group, "kind": TRAINJOB.plural}
            raise NotFound(f'{TRAINJOB.resource} "{name}" not found', details=details)
        return jobset

    def _serving(self, kind: Kind | None) -> Cluster:
        """Return the cluster. Raises NotFound for runtimes without Trainer's API: the API server checks permissions first (403)."""
        if kind in _RUNTIMES and kind.plural not in self._served:
            raise NotFound(
                f"this cluster does not serve {kind.resource}: only bundled runtimes and those in {FOLDERS} are available"
            )
        return self._cluster

    def _admitted(self, trainjob: Obj, strictness: FieldValidation = "Strict", on_warning: OnWarning | None = None) -> Obj:
        """Return the TrainJob as a server would store it; `on_warning` receives the warnings. Raises Invalid."""
        admitted = admit(trainjob, context=AdmissionContext(now=now(), strictness=strictness))
        if on_warning is not None:
            for warning in admitted.warnings:
                on_warning(warning)
        admitted.object["metadata"].setdefault("namespace", self.default_namespace)
        return admitted.object

    def _build(self, trainjob: Obj, runtime: Obj | None = None, keys: Keys | None = None) -> Built:
        """Build the objects of an admitted TrainJob; `runtime` defaults to the one that it references, `keys` to random ones."""
        if runtime is None:
            runtime = resolve_in_cluster(self, trainjob["spec"]["runtimeRef"], namespace_of(trainjob), bundled=True).runtime
        try:
            return build_jobset(trainjob, runtime, keys=keys or RandomKeys())
        except ModuleNotFoundError as error:
            message = f"its runtime requires keys, which need the package {error.name}: install trainwright[controller]"
            raise Invalid.of("TrainJob", name_of(trainjob), [Problem("spec.runtimeRef", message)], TRAINER) from error

    def check_name(self, trainjob: Obj) -> None:
        """Reject the name of an existing TrainJob: its controller would later create a JobSet of the same name."""
        if TRAINJOB.plural not in self._served:
            return
        try:
            self._cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        except NotFound:
            return
        except Forbidden as error:  # an account for JobSets alone
            log.info("event=trainjobs_not_readable name=%s error=%s", name_of(trainjob), error.message)
            return
        raise Invalid(
            f"the TrainJob {name_of(trainjob)} exists and was not created in jobset mode: delete it, or use the mode trainjob"
        )

    def _complete_existing(self, trainjob: Obj) -> None:
        """Complete an existing JobSet of this name, whose client may have crashed. Raises Invalid for a foreign JobSet."""
        try:
            jobset = self._cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
        except NotFound:  # deleted in the meantime
            return
        if not carries_trainjob(jobset):
            owner = controller_of(jobset) or {}
            described = f"of the {owner['kind']} {owner['name']}" if owner else "of another owner"
            raise Invalid(f"the JobSet {name_of(jobset)} {described} exists; give the TrainJob another name, or delete it")
        if awaits_companions(jobset) and not is_deleting(jobset):
            self._companion_creator.complete(jobset)


def _writable(trainjob: Obj) -> Obj:
    """Return the fields of a TrainJob that a client can change."""
    metadata = {"labels": labels_of(trainjob), "annotations": annotations_of(trainjob)}
    return {"metadata": metadata, "spec": trainjob.get("spec") or {}}


def _view(jobset: Obj) -> Obj | None:
    """Return the TrainJob of a JobSet; None if it cannot be read, so that a list still contains the others."""
    try:
        return trainjob_of(jobset)
    except ApiError as error:
        log.warning("event=trainjob_not_readable error=%s", error.message)
        return None


def _view_events(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    for event in events:
        if event.type == "BOOKMARK":
            stored = {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": event.object.get("metadata") or {}}
            yield WatchEvent(event.type, stored)
        elif names.TRAINJOB_ANNOTATION in annotations_of(event.object) and (job := _view(event.object)) is not None:
            yield WatchEvent(event.type, job)


def _with_jobset_owners(patch: Any) -> Any:
    """Replace TrainJobs by their JobSets in the owner references of a patch: they share name and UID."""
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("ownerReferences"):
        return patch
    jobset = {"apiVersion": JOBSET.api_version, "kind": JOBSET.kind}
    owners = [{**owner, **jobset} if kind_of(owner) == TRAINJOB else owner for owner in metadata["ownerReferences"]]
    return {**patch, "metadata": {**metadata, "ownerReferences": owners}}


def _with_jobset_mode_selector(selector: str) -> str:
    return f"{_JOBSET_MODE_SELECTOR},{selector}" if selector else _JOBSET_MODE_SELECTOR


def _no_status() -> MethodNotAllowed:
    return MethodNotAllowed("in jobset mode the status of a TrainJob is derived from its JobSet and cannot be written")
