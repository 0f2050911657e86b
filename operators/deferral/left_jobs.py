"""Finds the TrainJobs of tasks that have ended while nobody stopped them, and stops them: once in every triggerer, all the time.

A trigger stops the job of its task, and so does a worker. But a task may be ended before its trigger has started, while its worker is
killed, between two tries, or while no triggerer runs. Its job notes the task, and the search asks Airflow's database about those that
still run. It is a thread of the triggerer's own process, which has the database: the process with the triggers has not, and is busy.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import AWAITED_BY_ANNOTATION
from trainwright.backoff import Backoff
from trainwright.cluster import NoCluster
from trainwright.cluster.discovery import is_allowed
from trainwright.cluster.reflector import Reflector, TransformingLister
from trainwright.cluster.refusals import Permission
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.waiters import is_active
from trainwright.jobs.state.watched_pods import trim_trainjob
from trainwright.operators.deferral.airflow_records import (
    AwaitingTask,
    Place,
    ended_tasks,
    known_places,
    settings_of_connection,
)
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.airflow_api import AirflowNotFoundException
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.foreign_texts import without_credentials

PERIOD_SECONDS = 10.0
"""Between two questions to the database, which are asked only while jobs run that note a task."""
_AT_ONCE, _CONNECTING = 16, 4
_LONGEST_NOTE = 4096
_RENEWAL_SECONDS = 3600.0
"""How long a watch has the settings of its connection, which may be changed."""
_UNUSABLE = Backoff(30.0, 600.0)
"""Between two tries to watch the jobs of a connection that cannot be used here, as one of a cluster without TrainJobs."""
_FAILED = Backoff(10.0, 300.0)
"""Between two tries to stop a job."""
log = logging.getLogger(__name__)


@dataclass
class _Watch:
    """The watch of the jobs of a connection in a namespace, or in all: the client, and what keeps its jobs known."""

    client: JobsClient
    reflector: Reflector
    namespace: str | None
    since: float = field(default_factory=time.monotonic)

    def covers(self, place: Place) -> bool:
        """Whether jobs of another place with the same connection are among those that are known."""
        return self.namespace in (None, place.namespace) and place.mode in ("", str(self.client.mode))


@dataclass
class _Failures:
    """How often something has failed in a row, when it is due again (monotonic clock), and the last message about it."""

    count: int = 0
    due: float = 0.0
    said: str = ""

    def add(self, backoff: Backoff, message: str) -> bool:
        """Take note of a failure; returns whether its message is new."""
        self.count, is_new = self.count + 1, message != self.said
        self.due, self.said = time.monotonic() + backoff.pause(self.count), message
        return is_new


@dataclass
class LeftJobs:
    """The search of one process. An error ends nothing: it is logged when it is new, and tried again."""

    watches: dict[Place, _Watch] = field(default_factory=dict)
    _connecting: dict[Place, Future[_Watch]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_CONNECTING, thread_name_prefix="left-jobs-connect")
    )
    _unusable: dict[Place, _Failures] = field(default_factory=dict)
    _not_stopped: dict[str, _Failures] = field(default_factory=dict)
    _unread: _Failures = field(default_factory=_Failures)

    def look(self) -> None:
        """Find the jobs whose tasks have ended, and stop them; returns when each was tried once."""
        try:
            self._watch(known_places())
            found = {task.uid: (watch, job, task) for watch in self.watches.values() for job, task in _awaited(watch.reflector)}
            ended = ended_tasks([task for _, _, task in found.values()]) if found else {}
        except Exception as error:  # of any database: minor versions of Airflow differ
            if self._unread.add(_UNUSABLE, f"{type(error).__name__}: {error}"):
                log.warning("event=left_jobs_not_searched reason=%r outcome='their leases decide'", self._unread.said)
            return
        self._unread = _Failures()
        self._not_stopped = {uid: failures for uid, failures in self._not_stopped.items() if uid in ended}
        due = [uid for uid in ended if uid not in self._not_stopped or self._not_stopped[uid].due <= time.monotonic()]
        if due:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="left-jobs") as pool:
                list(pool.map(lambda uid: self._stop(*found[uid], ended[uid]), due))

    def _watch(self, places: set[Place]) -> None:
        """Watch the jobs of these places, without waiting: a cluster that does not answer holds up no other."""
        for place, connecting in list(self._connecting.items()):
            if connecting.done():
                del self._connecting[place]
                try:
                    self.watches[place] = connecting.result()
                    self._unusable.pop(place, None)
                except (ApiError, NoCluster, ValueError, OSError, AirflowNotFoundException) as error:
                    # Tried again later: the connection may be corrected, and the cluster may come back.
                    reason = without_credentials(error)
                    if self._unusable.setdefault(place, _Failures()).add(_UNUSABLE, reason):
                        log.info(
                            "event=left_jobs_not_watched conn_id=%s namespace=%s reason=%r",
                            place.conn_id,
                            place.namespace,
                            reason,
                        )
        now = time.monotonic()
        for place, watch in list(self.watches.items()):
            if watch.since < now - _RENEWAL_SECONDS:  # its connection may have changed, or be gone
                self.watches.pop(place).reflector.stop.set()
        self._unusable = {place: failures for place, failures in self._unusable.items() if place in places}
        for place in sorted(places, key=lambda each: each.namespace):  # those of any namespace first
            known = [*self.watches, *self._connecting]
            is_covered = place in known or any(
                other.conn_id == place.conn_id and watch.covers(place) for other, watch in self.watches.items()
            )
            is_next = place.namespace and any(each.conn_id == place.conn_id for each in self._connecting)
            if not (is_covered or is_next or self._unusable.setdefault(place, _Failures()).due > now):
                self._connecting[place] = self._pool.submit(_begin_watch, place)

    def _stop(self, watch: _Watch, trainjob: dict[str, Any], task: AwaitingTask, state: str) -> None:
        metadata = trainjob["metadata"]
        said = (f"{metadata['namespace']}/{metadata['name']}", task.dag_id, task.task_id, task.run_id, state)
        try:
            current = watch.client.get(TRAINJOB, metadata["name"], metadata["namespace"])
            if _note_of(current) != _note_of(trainjob):  # another task has adopted it since, or a person has resumed it
                return
            outcome = cancel_owned_job(watch.client, trainjob, CancelPolicy(task.on_cancel), timeout_seconds=None)
        except NotFound:  # somebody else has deleted it
            return
        except (ApiError, ValueError) as error:  # tried again at a later look
            if self._not_stopped.setdefault(task.uid, _Failures()).add(_FAILED, str(error)):
                log.error("event=left_job_not_stopped trainjob=%s dag=%s task=%s run=%s state=%s error=%r", *said, str(error))
        else:
            log.warning("event=left_job trainjob=%s dag=%s task=%s run=%s state=%s outcome=%r", *said, outcome)


def _begin_watch(place: Place) -> _Watch:
    """Watch the jobs of Airflow's tasks in a place: in its namespace, else in all of them, else in that of the connection.

    Raises NoCluster, ApiError, and the errors of `settings_of_connection`.
    """
    client = TrainwrightHook(place.conn_id, place.mode).connect(settings_of_connection(place.conn_id))
    selector = f"{names.MANAGED_BY_LABEL}=trainwright,{names.DAG_LABEL}"
    namespace = place.namespace or (None if _may_list_everywhere(client) else client.default_namespace)
    lister = TransformingLister(client, trim_trainjob)
    reflector = Reflector(lister, TRAINJOB, namespace, handler=lambda _kind, _job: None, label_selector=selector)
    reflector.start()
    return _Watch(client, reflector, namespace)


def _may_list_everywhere(client: JobsClient) -> bool:
    """Whether the account may list the jobs of all namespaces; False if it may not even ask."""
    try:
        return is_allowed(client, Permission("list", client.job_kind.resource))
    except ApiError:  # it may not even ask
        return False


def _awaited(reflector: Reflector) -> Iterator[tuple[dict[str, Any], AwaitingTask]]:
    """Yield the jobs that run or will run, with the tasks that they note."""
    for trainjob in list(reflector.known.values()):
        noted = _note_of(trainjob)
        if noted and is_active(trainjob):
            try:
                if len(noted) > _LONGEST_NOTE:
                    raise ValueError("too long")
                yield trainjob, AwaitingTask(uid=trainjob["metadata"]["uid"], **json.loads(noted))
            except (ValueError, TypeError, RecursionError):  # whoever may change a job may write anything
                log.debug("event=awaiting_task_unreadable name=%s value=%.200r", trainjob["metadata"]["name"], noted)


def _note_of(trainjob: dict[str, Any]) -> str:
    return (trainjob["metadata"].get("annotations") or {}).get(AWAITED_BY_ANNOTATION) or ""
