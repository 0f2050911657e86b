"""Adoption of an existing TrainJob: checks that it is the one that the step would create, and resumes it if needed."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.api.suspension import MARKS, early_stop_reason, is_suspended_by_us
from trainwright.api.waiter_lease import release_patch, waiter_lease_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import TrainJobNameTaken
from trainwright.jobs.state.identity import Identity


def check_owner(existing: Obj, identity: Identity) -> None:
    """Raise TrainJobNameTaken if the job belongs to another step or run."""
    owner = annotations_of(existing).get(names.OWNER_ANNOTATION)
    if owner != str(identity):
        raise TrainJobNameTaken(
            f"the TrainJob {name_of(existing)!r} exists and belongs to {owner or 'another owner'}, not to {identity}"
        )


def check_digest(existing: Obj, desired: Obj) -> None:
    """Raise TrainJobNameTaken if the job was created from another request."""
    key = names.SPEC_DIGEST_ANNOTATION
    if annotations_of(existing).get(key) != annotations_of(desired)[key]:
        raise TrainJobNameTaken(
            f"the TrainJob {name_of(existing)!r} was created from another request and has not failed; "
            "delete it, or use another run id"
        )


def resume_if_suspended_by_us(cluster: Cluster, trainjob: Obj) -> Obj:
    """Resume a job that an earlier cancellation by Trainwright suspended; any other suspension is kept, and so is an early stop."""
    if not is_suspended_by_us(trainjob) or early_stop_reason(trainjob):
        return trainjob
    patch = {"spec": {"suspend": False}, "metadata": {"annotations": dict.fromkeys(MARKS)}}
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])


def release_lease(cluster: Cluster, trainjob: Obj) -> Obj:
    """Remove the lease of an earlier client, whose expiry would suspend a job that this one waits for."""
    if is_finished(trainjob) or waiter_lease_of(trainjob) is None:
        return trainjob
    return cluster.patch(TRAINJOB, name_of(trainjob), release_patch(trainjob), trainjob["metadata"]["namespace"])
