"""Creates the companion objects of a JobSet, then resumes it.

The JobSet is created first, since it owns the others: a client crash in between leaves no orphans. It stays suspended until its
companions exist; submitting the step again creates the missing ones and resumes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable
from trainwright.api.kinds import JOBSET, SECRET, kind_of
from trainwright.api.objects import Obj, controller_of, is_controlled_by, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.submission.jobs_client import Built
from trainwright.submission.jobset_mode.conversion import awaits_companions, companion_key, owned_by, record_of, trainjob_of

_MAX_TRIES = 10
_PREDECESSOR_SECONDS = 1.0
"""Retry interval while a companion of an earlier job of the same name is being deleted."""
log = logging.getLogger(__name__)


class CompanionCreator:
    """`build` rebuilds the objects of an admitted TrainJob."""

    def __init__(self, cluster: Cluster, build: Callable[[Obj], Built]):
        self._cluster, self._build = cluster, build

    def complete(self, jobset: Obj, built: Built | None = None) -> Obj:
        """Create missing companions and resume the JobSet; returns it. `built` is what a new JobSet was created from.

        Idempotent, and safe to call concurrently. On a permanent error the JobSet is deleted. Raises ApiError.
        """
        try:
            self.make_companions(jobset, built)
        except ApiError as error:  # a retry goes on where this one stopped
            if not error.retryable:
                log.warning("event=jobset_withdrawn name=%s error=%s", name_of(jobset), error.message)
                self._delete_jobset(jobset)
            raise
        return self._resume_if_ready(jobset)

    def make_companions(self, jobset: Obj, built: Built | None = None) -> None:
        """Create the missing companions; without `built`, checks first which exist, except Secrets. Raises ApiError."""
        keys = record_of(jobset).companions
        missing = [key for key in keys if built is not None or key[1] == SECRET.kind or not self._has(jobset, key)]
        if not missing:
            return
        for companion in (built or self._build(_original_trainjob(jobset))).companions:
            if companion_key(companion) in missing:
                self._create_companion(jobset, companion)

    def _create_companion(self, jobset: Obj, companion: Obj) -> None:
        try:
            self._cluster.create(owned_by(jobset, companion))
        except AlreadyExists:
            if self._has(jobset, companion_key(companion)) is False:  # deleted in the meantime
                raise _predecessor_terminating(companion["kind"], name_of(companion)) from None

    def _has(self, jobset: Obj, key: tuple[str, str, str]) -> bool | None:
        """Whether the companion exists, or None for a Secret that this client may not read: then one that exists is taken for it.

        Raises Invalid if an object with its name has another owner.
        """
        version, kind_name, name = key
        kind = kind_of({"apiVersion": version, "kind": kind_name})
        assert kind is not None, key
        try:
            found = self._cluster.get(kind, name, namespace_of(jobset))
        except NotFound:  # the JobSet was made, its companion not yet
            return False
        except Forbidden:
            if kind is not SECRET:
                raise
            return None
        if is_controlled_by(found, jobset):
            return True
        owner = controller_of(found) or {}
        if is_deleting(found) or (owner.get("kind"), owner.get("name")) == (JOBSET.kind, name_of(jobset)):
            raise _predecessor_terminating(kind_name, name)
        raise Invalid(f"the {kind_name} {name} exists and has another owner; give the TrainJob another name")

    def _resume_if_ready(self, jobset: Obj) -> Obj:
        """Resume a JobSet that is suspended for its companions, unless it was changed in the meantime; returns it."""
        for _ in range(_MAX_TRIES):
            if not awaits_companions(jobset):
                return jobset
            annotations = {names.SUSPENDED_BY_ANNOTATION: None, names.COMPANIONS_CREATED_ANNOTATION: "2"}
            version = jobset["metadata"]["resourceVersion"]
            change = {"metadata": {"annotations": annotations, "resourceVersion": version}, "spec": {"suspend": False}}
            try:
                return self._cluster.patch(JOBSET, name_of(jobset), change, namespace_of(jobset))
            except Conflict:  # its status changed, or a concurrent try was faster
                jobset = self._cluster.get(JOBSET, name_of(jobset), namespace_of(jobset))
        raise Conflict(f"JobSet {name_of(jobset)} changed {_MAX_TRIES} times while it was being started")

    def _delete_jobset(self, jobset: Obj) -> None:
        key = (JOBSET, name_of(jobset), namespace_of(jobset))
        try:
            self._cluster.delete(*key, propagation="Foreground", uid=uid_of(jobset))
        except NotFound:  # somebody else has deleted it
            return
        except ApiError as error:
            log.warning("event=jobset_not_deleted name=%s error=%s", name_of(jobset), error.message)


def _predecessor_terminating(kind: str, name: str) -> ServiceUnavailable:
    message = f"the {kind} {name} of an earlier job of this name is still being deleted"
    return ServiceUnavailable(message, retry_after=_PREDECESSOR_SECONDS)


def _original_trainjob(jobset: Obj) -> Obj:
    """Return the TrainJob to rebuild the companions from."""
    trainjob = trainjob_of(jobset)
    metadata = {"name": name_of(jobset), "namespace": namespace_of(jobset)}
    return admit(
        {"apiVersion": trainjob["apiVersion"], "kind": trainjob["kind"], "metadata": metadata, "spec": trainjob["spec"]}
    ).object
