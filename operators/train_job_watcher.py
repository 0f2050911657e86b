"""Emits an asset event whenever a TrainJob has succeeded, whoever submitted it: the trigger of an Airflow `AssetWatcher`.

One list and one watch for each trigger, in a thread; an expired watch, pages of a long list and an API server that cannot be
reached are the reflector's business. Airflow identifies a trigger of a watcher by its arguments, which are therefore the same at every
parsing of a DAG: no time of creation is among them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from trainwright.api.conditions import condition, is_true
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.times import parse_time
from trainwright.backoff import Backoff
from trainwright.operators.hook import TrainwrightHook

_OVERLAP = timedelta(seconds=60)
"""How far behind the latest completion another one may be reported: conditions have whole seconds, controllers several workers."""
_CHECK_SECONDS = 30.0
_SYNC_SECONDS = 0.1
_MAX_RECENT = 900
"""UIDs in the stored state, of jobs that succeeded within the overlap: about 60 kB of the 64 kB that Airflow stores."""


class TrainJobCompletionTrigger(BaseEventTrigger):
    """Fires once for every TrainJob of a namespace, with matching labels, that succeeds from now on.

    Jobs that had succeeded when the trigger was started first are not reported. What succeeds while no triggerer runs is reported when
    one runs again, from Airflow 3.3 on: how far it has come is kept in the state store of the watched asset. Without that store it
    is not reported. An event may come twice if a triggerer is killed right after it: its `uid` tells.

    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param label_selector: labels of the TrainJobs, such as `team=nlp,tier in (a,b)`. Empty: all.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.

    The event: `name`, `namespace`, `uid` and `labels` of the job, the `metrics` last reported, and when it was `completed` (RFC 3339).
    """

    backoff = Backoff(1.0, 60.0)
    """Seconds after which a cluster that cannot be reached is tried again, at first; not an argument, which would be stored."""

    def __init__(
        self, *, namespace: str = "", label_selector: str = "", submission_mode: str = "", conn_id: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.namespace, self.label_selector = namespace, label_selector
        self.submission_mode, self.conn_id = submission_mode, conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {
            "namespace": self.namespace,
            "label_selector": self.label_selector,
            "submission_mode": self.submission_mode,
            "conn_id": self.conn_id,
        }
        return "trainwright.operators.train_job_watcher.TrainJobCompletionTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from trainwright.cluster.reflector import Reflector, TransformingLister

        loop, seen = asyncio.get_running_loop(), asyncio.Queue[_Change]()
        cluster = await self._connected()

        def put(kind: str, trainjob: dict[str, Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the triggerer ends
                loop.call_soon_threadsafe(seen.put_nowait, _Change(kind, trainjob, reflector.synced.is_set()))

        reflector = Reflector(
            TransformingLister(cluster, _trimmed),
            TRAINJOB,
            self.namespace or cluster.default_namespace,
            handler=put,
            label_selector=self.label_selector,
        )
        stored = await self._stored()
        completions = Completions() if stored is None else stored
        reflector.start()
        try:
            changes = await self._first_list(reflector, seen)
            if stored is None:
                completions.skip([change for change in changes if not change.is_later])
            while True:
                for trainjob in completions.new_among(changes):
                    yield TriggerEvent(_payload(trainjob))  # type: ignore[no-untyped-call]
                await self._store(completions)
                changes = await self._next_changes(reflector, seen)
        finally:
            reflector.stop.set()

    async def _first_list(self, reflector: Any, seen: asyncio.Queue[_Change]) -> list[_Change]:
        """All changes up to the end of the first list, as soon as there is one."""
        since_report = 0.0
        while not reflector.synced.is_set():
            await asyncio.sleep(_SYNC_SECONDS)
            since_report += _SYNC_SECONDS
            if since_report >= _CHECK_SECONDS:
                self._report_outage(reflector)
                since_report = 0.0
        await asyncio.sleep(0)  # the loop takes over what the thread has put
        return _drained(seen)

    async def _next_changes(self, reflector: Any, seen: asyncio.Queue[_Change]) -> list[_Change]:
        """The next changes among which a job has succeeded, or was deleted."""
        while True:
            try:
                changes = [await asyncio.wait_for(seen.get(), _CHECK_SECONDS), *_drained(seen)]
            except TimeoutError:  # a quiet cluster, or one that cannot be reached
                self._report_outage(reflector)
                continue
            if any(change.kind == "DELETED" or _completed(change.trainjob) for change in changes):
                return changes

    async def _connected(self) -> Any:
        """The cluster, as soon as it can be reached. An error is logged and tried again, less and less often."""
        from trainwright.cluster import NoCluster

        failures = 0
        while True:
            try:
                return await TrainwrightHook(self.conn_id, self.submission_mode).aget_conn()
            except (ApiError, NoCluster) as error:  # the watcher has no task that could fail: it waits for the cluster
                self.log.warning("cannot watch TrainJobs, trying again: %s", error)
            failures += 1
            await asyncio.sleep(self.backoff.pause(failures))

    def _report_outage(self, reflector: Any) -> None:
        if (failure := reflector.failure) is not None:
            self.log.warning("TrainJobs cannot be watched, and nothing is reported until they can: %s", failure[1])

    @property
    def _key(self) -> str:
        """The key of the state: an asset may have several watchers."""
        path, arguments = self.serialize()
        return f"trainwright-{hashlib.sha256(repr((path, sorted(arguments.items()))).encode()).hexdigest()[:16]}"

    async def _stored(self) -> Completions | None:
        """What an earlier triggerer has reported; None for the first one, and if it cannot be read."""
        store = getattr(self, "asset_state_store", None)
        if store is None:  # Airflow offers none here
            return None
        try:
            state = await store.aget(self._key)
        except Exception as error:  # of any backend; events matter more than those of the past
            self.log.warning("the state of the watcher cannot be read: %s", error)
            return None
        return Completions.from_dict(state) if isinstance(state, dict) else None

    async def _store(self, completions: Completions) -> None:
        store = getattr(self, "asset_state_store", None)
        if store is None:  # Airflow offers none here
            return
        try:
            await store.aset(self._key, completions.as_dict())
        except Exception as error:  # of any backend; the next completion stores it
            self.log.warning("the state of the watcher cannot be stored: %s", error)


class _Change(NamedTuple):
    """A change of a job; whether it came after the first list."""

    kind: str
    trainjob: dict[str, Any]
    is_later: bool


class Completions:
    """Which completions are known. Does no I/O.

    After a restart of the triggerer those are new that come after `latest`, and those of the minute before it that are not in `recent`
    (time by UID). Times are those of the jobs' conditions, from one clock, that of their controller: the triggerer's does not matter.
    """

    def __init__(self, latest: str = "", recent: dict[str, str] | None = None) -> None:
        self.latest, self.recent = latest, dict(recent or {})
        self._start, self._known = latest, set(self.recent)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Completions:
        return cls(str(state.get("latest") or ""), state.get("recent"))

    def as_dict(self) -> dict[str, Any]:
        newest = sorted(self.recent.items(), key=lambda entry: entry[1])[-_MAX_RECENT:]
        return {"latest": self.latest, "recent": dict(newest)}

    def skip(self, changes: list[_Change]) -> None:
        """Take note of the jobs that had succeeded before the first start."""
        self.new_among(changes)
        self._start = self.latest

    def new_among(self, changes: list[_Change]) -> list[dict[str, Any]]:
        """The jobs that have succeeded and were not known, the earliest first. They are known from now on."""
        found: dict[str, dict[str, Any]] = {}
        for change in changes:
            uid = change.trainjob["metadata"]["uid"]
            if change.kind == "DELETED":
                self._known.discard(uid)
            elif self._is_new(change.trainjob):
                found[uid] = change.trainjob
                self._known.add(uid)
                self.recent[uid] = _completed(change.trainjob)
        self.latest = max([self.latest, *self.recent.values()])
        self.recent = {uid: when for uid, when in self.recent.items() if not _is_long_before(when, self.latest)}
        return sorted(found.values(), key=_completed)

    def _is_new(self, trainjob: dict[str, Any]) -> bool:
        completed = _completed(trainjob)
        if not completed or trainjob["metadata"]["uid"] in self._known:  # it has not succeeded, or was reported
            return False
        return not self._start or not _is_long_before(completed, self._start)


def _drained(queue: asyncio.Queue[_Change]) -> list[_Change]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


def _is_long_before(moment: str, latest: str) -> bool:
    return parse_time(latest) - parse_time(moment) > _OVERLAP


def _completed(trainjob: dict[str, Any]) -> str:
    """When the job succeeded; empty if it has not."""
    found = condition(trainjob, "Complete") if is_true(trainjob, "Complete") else None
    return str(found.get("lastTransitionTime") or "") if found else ""


def _trimmed(trainjob: dict[str, Any]) -> dict[str, Any]:
    from trainwright.jobs.state.watched_pods import trim_trainjob

    trimmed = trim_trainjob(trainjob)
    return {**trimmed, "metadata": {**trimmed["metadata"], "labels": trainjob["metadata"].get("labels") or {}}}


def _payload(trainjob: dict[str, Any]) -> dict[str, Any]:
    from trainwright.jobs.state.progress import progress_of

    metadata = trainjob["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "labels": dict(metadata.get("labels") or {}),
        "metrics": dict(progress_of(trainjob).metrics),
        "completed": _completed(trainjob),
    }
