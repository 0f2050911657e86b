"""Progress reports: stores what training processes post in `status.trainerStatus` of their TrainJob.

Implements the protocol of Trainer's status server, which transformers supports natively. A pod authenticates with a token for
exactly this path, and must belong to this TrainJob.
Deviation: a missing `lastUpdatedTime` is set to the current time, where the original rejects the report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from trainwright.api.errors import ApiError, Invalid, NotFound, Problem
from trainwright.api.kinds import JOB, JOBSET, POD, TRAINJOB
from trainwright.api.names import progress_audience
from trainwright.api.objects import Obj, controller_of, copy_of, uid_of
from trainwright.api.times import parse_time, rfc3339
from trainwright.controlplane.apiserver.auth.tokens import Authenticator, Tokens
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

log = logging.getLogger(__name__)

MAX_BODY = 65536
MAX_METRICS = 256
_PATH = "status.trainerStatus"
_INT32 = 2**31 - 1
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)


@dataclass(frozen=True)
class Report:
    """A received report. `token` is None if missing; `body` is empty if `size` bytes exceed the limit."""

    namespace: str
    name: str
    token: str | None
    size: int
    body: bytes


class ProgressReports:
    """Stores reports: call it with a `Report`; returns the HTTP status code and the response body."""

    def __init__(self, server: ResourceServer, tokens: Tokens, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._server = server
        self._authenticator = Authenticator(tokens, server.store)
        self._clock = clock

    def __call__(self, report: Report) -> tuple[int, Obj]:
        if not self._may_report(report):
            return status_error(403, "Forbidden", "Forbidden")
        if report.size > MAX_BODY:
            return status_error(413, "RequestEntityTooLarge", "Payload too large")
        try:
            status = parse_report(report.body, rfc3339(self._clock()))
        except ValueError:
            return status_error(422, "Invalid", "Invalid payload")
        if status is None:
            return 200, {}
        problems = list(_problems(status))
        if problems:
            error = Invalid.of("TrainJob", report.name, problems, "trainer.kubeflow.org")
            return status_error(422, "Invalid", error.message)
        try:
            self._store(report, status)
        except NotFound:
            return status_error(404, "NotFound", "Train job not found")
        except Invalid as error:
            return status_error(422, "Invalid", error.message)
        except ApiError as error:  # the reporter learns nothing of the cluster
            log.warning("event=progress_failed trainjob=%s/%s error=%r", report.namespace, report.name, error.message)
            return status_error(500, "InternalError", "Internal error")
        return 200, {"trainerStatus": status}

    def _may_report(self, report: Report) -> bool:
        try:
            claims = self._authenticator.verify(report.token or "", progress_audience(report.namespace, report.name))
        except ApiError:  # whatever is wrong with the token, it is the same to its sender
            return False
        bound = claims["kubernetes.io"]
        return bound.get("namespace") == report.namespace and self._is_pod_of_job(report, bound.get("pod") or {})

    def _is_pod_of_job(self, report: Report, pod: Obj) -> bool:
        """Whether a pod belongs to the TrainJob: any pod of the namespace can get a token for any audience."""
        kind, name, uid = POD, pod.get("name", ""), pod.get("uid", "")
        for owner_kind in (JOB, JOBSET, TRAINJOB):
            record = self._server.store.get(kind.resource, report.namespace, name)
            owner = controller_of(record.object) if record is not None and uid_of(record.object) == uid else None
            if owner is None or owner["kind"] != owner_kind.kind:
                return False
            kind, name, uid = owner_kind, owner["name"], owner["uid"]
        job = self._server.store.get(TRAINJOB.resource, report.namespace, report.name)
        return name == report.name and (job is None or uid_of(job.object) == uid)

    def _store(self, report: Report, trainer_status: Obj) -> None:
        """Replace trainerStatus and keep the rest of the status."""
        with self._server.store.locked():
            job = self._server.get(TRAINJOB, report.namespace, report.name).object
            changed = {**job, "status": {**(job.get("status") or {}), "trainerStatus": copy_of(trainer_status)}}
            self._server.update(TRAINJOB, report.namespace, report.name, changed, WriteOptions(status=True))


def status_error(code: int, reason: str, message: str) -> tuple[int, Obj]:
    """An error response in the format of the status server, without kind and apiVersion."""
    return code, {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def parse_report(body: bytes, now: str) -> Obj | None:
    """The trainerStatus of a report without unknown fields; None if the report has none.

    Raises ValueError for malformed reports and fields of the wrong type.
    """
    content = orjson.loads(body)
    if not isinstance(content, dict):
        raise ValueError("the report must be an object")
    given = content.get("trainerStatus")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("trainerStatus must be an object")
    status: Obj = {}
    for name in ("progressPercentage", "estimatedRemainingSeconds"):
        if given.get(name) is not None:
            status[name] = _whole(given[name])
    if given.get("metrics") is not None:
        if not isinstance(given["metrics"], list):
            raise ValueError("metrics must be a list")
        status["metrics"] = [_metric(entry) for entry in given["metrics"]]
    stamp = given.get("lastUpdatedTime")
    if stamp is not None and not isinstance(stamp, str):
        raise ValueError("lastUpdatedTime must be a string")
    status["lastUpdatedTime"] = rfc3339(parse_time(stamp)) if stamp else now
    return status


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT32 - 1 <= value <= _INT32:
        raise ValueError("must be a 32-bit integer")
    return value


def _metric(entry: Any) -> Obj:
    if not isinstance(entry, dict):
        raise ValueError("a metric must be an object")
    name, value = entry.get("name", ""), entry.get("value", "")
    if not isinstance(name, str) or not isinstance(value, str):
        raise ValueError("name and value of a metric must be strings")
    return {"name": name, "value": value}


def _problems(status: Obj) -> Iterator[Problem]:
    progress = status.get("progressPercentage", 0)
    if progress > 100:
        yield _out_of_range("progressPercentage", progress, "less than or equal to 100")
    if progress < 0:
        yield _out_of_range("progressPercentage", progress, "greater than or equal to 0")
    remaining = status.get("estimatedRemainingSeconds", 0)
    if remaining < 0:
        yield _out_of_range("estimatedRemainingSeconds", remaining, "greater than or equal to 0")
    metrics = status.get("metrics", [])
    if len(metrics) > MAX_METRICS:
        yield Problem(f"{_PATH}.metrics", f"Too many: {len(metrics)}: must have at most {MAX_METRICS} items", "FieldValueTooMany")
        yield Problem("<nil>", f"Invalid value: null: {_UNCHECKED}")
        return
    for index, metric in enumerate(metrics):
        for part in ("name", "value"):
            if not metric[part]:
                field = f"metrics[{index}].{part}"
                yield Problem(
                    f"{_PATH}.{field}", f'Invalid value: "": trainerStatus.{field} in body should be at least 1 chars long'
                )


def _out_of_range(field: str, value: int, bound: str) -> Problem:
    return Problem(f"{_PATH}.{field}", f"Invalid value: {value}: trainerStatus.{field} in body should be {bound}")
