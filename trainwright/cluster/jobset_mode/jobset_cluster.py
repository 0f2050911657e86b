"""A `Cluster` in which every TrainJob is a JobSet: what is above it submits, follows, suspends and deletes TrainJobs as anywhere.

All other kinds are the cluster's own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainwright.api import names
from trainwright.api.admission import AdmissionContext, admit
from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
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
from trainwright.api.merge_patch import difference
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
from trainwright.api.times import now
from trainwright.cluster.jobset_mode.building import Built, built, is_held
from trainwright.cluster.jobset_mode.changing import jobset_patch, resumes
from trainwright.cluster.jobset_mode.presenting import trainjob_of
from trainwright.cluster.jobset_mode.record import carries_trainjob
from trainwright.cluster.jobset_mode.schema import trainjob_definition
from trainwright.cluster.jobset_mode.starting import Starter
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.protocol import Cluster, Listing, PatchType, Propagation, WatchEvent
from trainwright.cluster.runtime_lookup import runtime_lookup
from trainwright.materialize import FreshKeys
from trainwright.runtimes import resolve_runtime
from trainwright.runtimes.bundled import FOLDERS

if TYPE_CHECKING:
    from trainwright.cluster.submission_mode import Choice

_MINE = f"{names.STANDS_FOR_LABEL}=TrainJob"
log = logging.getLogger(__name__)


class JobSetCluster:
    """Implements `Cluster` on another one. `served` are the resources of Trainer's API that are served there, if any."""

    def __init__(self, cluster: Cluster, *, served: frozenset[str] = frozenset(), default_namespace: str = "default"):
        self._cluster, self._served = cluster, served
        self.default_namespace = default_namespace
        self.choice: Choice | None = None
        """Why TrainJobs are submitted like that, where somebody has chosen."""
        self._starter = Starter(cluster, self._built)

    @property
    def behind(self) -> Cluster:
        """The cluster as it is."""
        return self._cluster

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        if kind == TRAINJOB:
            return trainjob_of(self._jobset(name, namespace))
        if kind.plural == DEFINITION.plural and name == TRAINJOB.resource:
            return trainjob_definition()
        self._check_served(kind)
        return self._cluster.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        if kind != TRAINJOB:
            self._check_served(kind)
            return self._cluster.list(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        found = self._cluster.list(JOBSET, namespace, label_selector=_mine(label_selector), field_selector=field_selector)
        return Listing([job for jobset in found.items if (job := _presented(jobset)) is not None], found.resource_version)

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> Iterator[WatchEvent]:
        self._check_served(kind)
        events = self._cluster.watch(
            JOBSET if kind == TRAINJOB else kind,
            namespace,
            resource_version=resource_version,
            label_selector=_mine(label_selector) if kind == TRAINJOB else label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
        )
        return _presented_events(events) if kind == TRAINJOB else events

    def create(self, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Of a TrainJob: its JobSet and what that needs. With `dry_run` the server only says what it would make of the JobSet.

        Raises RuntimeNotFound, and Invalid where a TrainJob would be refused.
        """
        kind = kind_of(obj)
        if kind != TRAINJOB:
            self._check_served(kind)
            return self._created(obj, dry_run=dry_run)
        trainjob = admit(obj, context=AdmissionContext(now=now())).object
        trainjob["metadata"].setdefault("namespace", self.default_namespace)
        wanted = self._built(trainjob)
        self._refuse_rivals(trainjob)
        if dry_run:
            return trainjob_of(self._created(wanted.jobset, dry_run=True))
        try:
            jobset = self._cluster.create(wanted.jobset)
        except AlreadyExists:
            self._complete_anothers(trainjob)
            raise
        return trainjob_of(self._starter.complete(jobset, wanted))

    def update(self, obj: Obj) -> Obj:
        """Of a TrainJob: as a patch with what differs from what there is. Raises Conflict when its version is stale."""
        kind = kind_of(obj)
        if kind != TRAINJOB:
            self._check_served(kind)
            return self._cluster.update(obj)
        current = self.get(TRAINJOB, name_of(obj), namespace_of(obj))
        change = difference(_writable(current), _writable(obj))
        if version := obj["metadata"].get("resourceVersion"):
            change.setdefault("metadata", {})["resourceVersion"] = version
        return self.patch(TRAINJOB, name_of(obj), change, namespace_of(obj))

    def update_status(self, obj: Obj) -> Obj:
        if kind_of(obj) == TRAINJOB:
            raise _no_status()
        return self._cluster.update_status(obj)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        patch_type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str = "trainwright",
        force: bool = False,
    ) -> Obj:
        """Of a TrainJob: its labels, its annotations, and whether it is suspended, by merge patch. Raises Invalid for the rest."""
        if kind != TRAINJOB:
            self._check_served(kind)
            more: Any = {"patch_type": patch_type, "subresource": subresource, "field_manager": field_manager, "force": force}
            return self._cluster.patch(kind, name, _owned_by_jobsets(patch), namespace, **more)
        if subresource is not None:
            raise _no_status()
        if patch_type != "merge":
            raise MethodNotAllowed("in jobset mode TrainJobs take merge patches only")
        change = jobset_patch(name, patch)
        jobset = self._jobset(name, namespace)
        if resumes(change):
            self._starter.make_companions(jobset)
            if is_held(jobset):
                notes = change.setdefault("metadata", {}).setdefault("annotations", {})
                notes[names.BUILT_ANNOTATION] = "2"
        return trainjob_of(self._cluster.patch(JOBSET, name, change, namespace, field_manager=field_manager))

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        if kind == TRAINJOB:
            uid = uid or uid_of(self._jobset(name, namespace))  # one that is somebody else's is not there
        else:
            self._check_served(kind)
        self._cluster.delete(
            JOBSET if kind == TRAINJOB else kind,
            name,
            namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
        )

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        return self._cluster.logs(name, namespace, **options)

    def _created(self, obj: Obj, *, dry_run: bool) -> Obj:
        if not dry_run:
            return self._cluster.create(obj)
        if not isinstance(self._cluster, KubernetesCluster):
            raise BadRequest("this cluster has no dry run")
        return self._cluster.create(obj, dry_run=True)

    def _jobset(self, name: str, namespace: str | None) -> Obj:
        """The JobSet of a TrainJob. Raises NotFound, also for a JobSet that stands for none."""
        try:
            jobset = self._cluster.get(JOBSET, name, namespace)
        except NotFound:
            jobset = None
        if jobset is None or not carries_trainjob(jobset):
            details = {"name": name, "group": TRAINJOB.group, "kind": TRAINJOB.plural}
            raise NotFound(f'{TRAINJOB.resource} "{name}" not found', details=details)
        return jobset

    def _check_served(self, kind: Kind | None) -> None:
        """Without Trainer's API a server may answer Forbidden instead of NotFound: it looks at rights first."""
        if kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME) and kind.plural not in self._served:
            raise NotFound(f"this cluster does not serve {kind.resource}: runtimes are those of the catalogue and of {FOLDERS}")

    def _built(self, trainjob: Obj) -> Built:
        lookup = runtime_lookup(self, namespace_of(trainjob))
        runtime = resolve_runtime(trainjob["spec"]["runtimeRef"], lookup, bundled=True).runtime
        try:
            return built(trainjob, runtime, keys=FreshKeys())
        except ModuleNotFoundError as error:
            message = f"its runtime needs keys, and these need the package {error.name}: install trainwright[controller]"
            raise Invalid.of("TrainJob", name_of(trainjob), [Problem("spec.runtimeRef", message)], TRAINER) from error

    def _refuse_rivals(self, trainjob: Obj) -> None:
        """A TrainJob that is there although nobody acts on it would get a JobSet one day: two of one name cannot be."""
        if TRAINJOB.plural not in self._served:
            return
        try:
            self._cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        except NotFound:
            return
        raise Invalid(
            f"the TrainJob {name_of(trainjob)} exists and was not made in jobset mode: delete it, or submit in the mode trainjob"
        )

    def _complete_anothers(self, trainjob: Obj) -> None:
        """The name is taken: by another try of ours, which may have died in between, or by somebody else's JobSet (Invalid)."""
        try:
            jobset = self._cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
        except NotFound:  # deleted in this moment
            return
        if not carries_trainjob(jobset):
            owner = controller_of(jobset) or {}
            whose = f"of the {owner['kind']} {owner['name']}" if owner else "of somebody else"
            raise Invalid(f"the JobSet {name_of(jobset)} {whose} exists; give the TrainJob another name, or delete it")
        if is_held(jobset) and not is_deleting(jobset):
            self._starter.complete(jobset)


def _writable(trainjob: Obj) -> Obj:
    """What a client may have changed of a TrainJob."""
    metadata = {"labels": labels_of(trainjob), "annotations": annotations_of(trainjob)}
    return {"metadata": metadata, "spec": trainjob.get("spec") or {}}


def _presented(jobset: Obj) -> Obj | None:
    """The TrainJob; None for one that cannot be read, which must not hide the others."""
    try:
        return trainjob_of(jobset)
    except ApiError as error:
        log.warning("%s", error.message)
        return None


def _presented_events(events: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
    for event in events:
        if event.type == "BOOKMARK":
            told = {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": event.object.get("metadata") or {}}
            yield WatchEvent(event.type, told)
        elif names.TRAINJOB_ANNOTATION in annotations_of(event.object) and (job := _presented(event.object)) is not None:
            yield WatchEvent(event.type, job)


def _owned_by_jobsets(patch: Any) -> Any:
    """Who gives another object to a TrainJob gives it to its JobSet: they have one name and one UID."""
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("ownerReferences"):
        return patch
    theirs = {"apiVersion": JOBSET.api_version, "kind": JOBSET.kind}
    owners = [{**owner, **theirs} if kind_of(owner) == TRAINJOB else owner for owner in metadata["ownerReferences"]]
    return {**patch, "metadata": {**metadata, "ownerReferences": owners}}


def _mine(selector: str) -> str:
    return f"{_MINE},{selector}" if selector else _MINE


def _no_status() -> MethodNotAllowed:
    return MethodNotAllowed("in jobset mode the status of a TrainJob follows from its JobSet, and cannot be written")
