"""The lease of the client that waits for a TrainJob, in annotations of the job. Whoever finds it expired may suspend the job.

A step that was killed cannot stop its job any more, which would train on for nobody. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.objects import Obj, annotations_of, is_deleting
from trainwright.api.times import is_moment, rfc3339, seconds_between
from trainwright.submission.suspension import is_suspended_by_us

MIN_SECONDS = 30
"""A shorter lease would expire when its holder is busy, or when clocks differ."""
RENEWALS = 4
"""How often a lease is renewed before it expires."""
_SECONDS = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class WaiterLease:
    """`renewed` is an RFC 3339 time of the holder's clock."""

    seconds: int
    renewed: str

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds until the lease expires; 0 or less if it has. One renewed in the future counts as renewed now."""
        return self.seconds - max(seconds_between(self.renewed, now), 0.0)


def lease_seconds(requested: int) -> int:
    """Return for how many seconds a lease is held: those requested, but not less than the minimum; 0 is no lease."""
    return max(requested, MIN_SECONDS) if requested else 0


def waiter_lease_of(trainjob: Obj) -> WaiterLease | None:
    """Return the lease of the waiting client; None without one, or with one that cannot be read."""
    annotations = annotations_of(trainjob)
    seconds, renewed = (annotations.get(key, "") for key in (names.WAITER_LEASE_ANNOTATION, names.WAITER_RENEWED_ANNOTATION))
    if not _SECONDS.fullmatch(seconds) or not is_moment(renewed):
        return None
    return WaiterLease(lease_seconds(int(seconds)), renewed)


def is_active(trainjob: Obj) -> bool:
    """Whether a job runs or will run: it has not ended, and is neither suspended nor being deleted."""
    return not (is_finished(trainjob) or is_deleting(trainjob) or trainjob["spec"].get("suspend"))


def active_lease_of(trainjob: Obj) -> WaiterLease | None:
    """Return the lease of a job that runs or will run; None if there is nothing to suspend when it expires."""
    return waiter_lease_of(trainjob) if is_active(trainjob) else None


def lease_annotations(seconds: int, now: datetime) -> dict[str, str]:
    """Return the annotations of a lease that begins now; empty for 0 seconds."""
    if not seconds:
        return {}
    return {names.WAITER_LEASE_ANNOTATION: str(seconds), names.WAITER_RENEWED_ANNOTATION: rfc3339(now)}


def renewal_patch(trainjob: Obj, seconds: int, now: datetime) -> Obj:
    """Return the patch that renews the lease, of this job only."""
    return {"metadata": {"uid": trainjob["metadata"]["uid"], "annotations": lease_annotations(seconds, now)}}


def release_patch(trainjob: Obj) -> Obj:
    """Return the patch that removes the lease, of this job only: from now on it may run without a waiting client."""
    annotations = {names.WAITER_LEASE_ANNOTATION: None, names.WAITER_RENEWED_ANNOTATION: None}
    return {"metadata": {"uid": trainjob["metadata"]["uid"], "annotations": annotations}}


def lost_mark() -> dict[str, str]:
    """Return the annotation of a job that is suspended because its waiting client is gone: that one resumes it if it is back."""
    return {names.WAITER_LOST_ANNOTATION: "true"}


def was_abandoned(trainjob: Obj) -> bool:
    """Whether a job is suspended because its lease had expired, and by nothing since."""
    return is_suspended_by_us(trainjob) and names.WAITER_LOST_ANNOTATION in annotations_of(trainjob)
