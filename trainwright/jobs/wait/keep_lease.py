"""Keeps a lease on the TrainJob while a client waits for it, and suspends the TrainJob at once on a signal.

Both use a separate connection. For a signal it is kept open: a step that is killed within a second has no time to open one, nor
for a request before the one that counts.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, generation_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.remaining_pods import have_pods_ended, wait_until_pods_ended
from trainwright.jobs.state.waiters import RENEWALS, is_active, lease_seconds, renewal_patch, was_abandoned
from trainwright.jobs.submit.adoption import resume_at_once
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.suspension import suspension_mark

_OF_THIS_CLIENT = (names.WAITER_LEASE_ANNOTATION, names.WAITER_RENEWED_ANNOTATION, names.WAITING_POD_ANNOTATION)
_REQUEST_SECONDS = 10.0
_WARM_SECONDS = 30.0
"""The connection for a signal is used at least that often: servers and load balancers close an idle one after a minute or more."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WaiterOptions:
    """`suspends_at_once`: whether a signal suspends the job. `lease_seconds`: after how many seconds without a sign of the client
    the job may be suspended by others; 0 for never."""

    suspends_at_once: bool = False
    lease_seconds: int = 0


class Waiter:
    """Acts for the client that waits for a job, in a thread, until it is closed. Errors are logged: the wait itself goes on."""

    def __init__(self, cluster: Cluster, trainjob: Obj, options: WaiterOptions):
        self._seen, self._lease_seconds = trainjob, lease_seconds(options.lease_seconds)
        self._ended, self._suspension = threading.Event(), threading.Lock()
        self._pauses = [_WARM_SECONDS] if options.suspends_at_once else []
        self._pauses += [self._lease_seconds / RENEWALS] if self._lease_seconds else []
        self._was_told = False
        if self._pauses:
            self._client = JobsClient.of(cluster).with_timeout(_REQUEST_SECONDS)
            self._thread = threading.Thread(target=self._keep, name=f"waiter-{name_of(trainjob)}", daemon=True)
            self._thread.start()

    def observe(self, trainjob: Obj) -> None:
        """Take note of the job's latest state."""
        self._seen = trainjob

    def suspend_now(self) -> None:
        """Send the one request that suspends the job as last seen, unless it has ended or somebody has suspended it.

        It fails if the spec has changed since, or the job is another one; the ordinary way to cancel a job then follows. Both threads
        that may learn of a signal first call this: the second waits for the request of the first.
        """
        with self._suspension:
            if self._was_told:  # the other thread has sent the request
                return
            self._was_told = True
            self._ended.set()
            patch = suspension_patch(self._seen)
            if not patch:  # it has ended, or is suspended already
                return
            try:
                self._client.patch(self._client.job_kind, name_of(self._seen), patch, namespace_of(self._seen), patch_type="json")
            except ApiError as error:  # the ordinary way to cancel a job follows
                log.warning("event=suspend_at_once_failed name=%s error=%s", name_of(self._seen), error.message)
            else:
                log.info("event=suspended_at_once name=%s", name_of(self._seen))

    def settle(self) -> None:
        """Wait for a request of `suspend_now` that is under way, so that the next one finds its effect."""
        with self._suspension:
            pass

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()

    def _keep(self) -> None:
        """Renew the lease, and use the connection for a signal often enough that it stays open."""
        pause = min(self._pauses)
        since_renewal = float(self._lease_seconds)
        while not self._ended.is_set():
            renews = bool(self._lease_seconds) and since_renewal >= self._lease_seconds / RENEWALS
            try:
                if renews:
                    self._renew()
                    since_renewal = 0.0
                else:
                    self._client.get(self._client.job_kind, name_of(self._seen), namespace_of(self._seen))
            except ApiError as error:  # the lease outlasts several failed renewals
                log.info("event=waiter_request_failed name=%s error=%s", name_of(self._seen), error.message)
            if self._ended.wait(pause):
                return
            since_renewal += pause

    def _renew(self) -> None:
        """Renew the lease. A job that was suspended because this client had been cut off for longer goes on."""
        renewed = _renewed(self._client, self._seen, self._lease_seconds)
        if not was_abandoned(renewed) or not wait_until_pods_ended(self._client, renewed, self._ended, to_resume=True):
            return
        with self._suspension:
            if not self._was_told:
                _resume_abandoned(self._client, renewed)


def renew_lease(cluster: Cluster, trainjob: Obj, seconds: int) -> bool:
    """Renew the lease of a job's waiting client; the job goes on if it was suspended because the lease had expired.

    Returns False if it does not yet, since its pods still end: call this again soon. For clients that wait for many jobs and keep no
    thread for each. Raises ApiError.
    """
    renewed = _renewed(cluster, trainjob, seconds)
    if was_abandoned(renewed):
        if not have_pods_ended(cluster, renewed):
            return False
        _resume_abandoned(cluster, renewed)
    return True


def _renewed(cluster: Cluster, trainjob: Obj, seconds: int) -> Obj:
    patch = renewal_patch(trainjob, seconds, datetime.now(UTC))
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob))


def _resume_abandoned(cluster: Cluster, renewed: Obj) -> None:
    log.warning("event=trainjob_resumed name=%s reason=its lease had expired", name_of(renewed))
    noted = annotations_of(renewed)
    resume_at_once(cluster, renewed, {name: noted[name] for name in _OF_THIS_CLIENT if name in noted})


def suspension_patch(trainjob: Obj) -> list[dict[str, Any]]:
    """Return the JSON patch that suspends this very job in this very form of its spec; empty if there is nothing to suspend.

    Other changes of the job, as of its status, do not matter. Only jobs that Trainwright has created are suspended.
    """
    if not is_active(trainjob) or names.OWNER_ANNOTATION not in annotations_of(trainjob):
        return []
    generation = generation_of(trainjob)
    ((annotation, mark),) = suspension_mark(trainjob).items()
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(trainjob)},
        {"op": "test", "path": "/metadata/generation", "value": generation},
        {"op": "add", "path": "/spec/suspend", "value": True},
        {"op": "add", "path": f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}", "value": mark},
    ]
