"""Progress reports: what a training process posts about itself lands in its TrainJob's `status.trainerStatus`.

The protocol of the Trainer's status server, which transformers speaks by itself. A pod authenticates with a token for exactly
this path. One kindness: a report without `lastUpdatedTime` is stamped, where the original refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from trainwright.api.errors import ApiError, Invalid, NotFound, Problem
from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import progress_audience
from trainwright.api.objects import Obj, copy_of
from trainwright.api.times import parse_time, rfc3339
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

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
    """A report as it came in. `token` is None without one; `body` is empty when `size` says that it is too large."""

    namespace: str
    name: str
    token: str | None
    size: int
    body: bytes


class ProgressReports:
    """Takes reports: callable with a `Report`, returns the HTTP status and the body to answer with."""

    def __init__(self, server: ResourceServer, tokens: Tokens, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        self._server = server
        self._tokens = tokens
        self._clock = clock

    def __call__(self, report: Report) -> tuple[int, Obj]:
        if not self._may_report(report):
            return refusal(403, "Forbidden", "Forbidden")
        if report.size > MAX_BODY:
            return refusal(413, "RequestEntityTooLarge", "Payload too large")
        try:
            status = parse_report(report.body, rfc3339(self._clock()))
        except ValueError:
            return refusal(422, "Invalid", "Invalid payload")
        if status is None:
            return 200, {}
        problems = list(_problems(status))
        if problems:
            error = Invalid.of("TrainJob", report.name, problems, "trainer.kubeflow.org")
            return refusal(422, "Invalid", error.message)
        try:
            self._store(report, status)
        except NotFound:
            return refusal(404, "NotFound", "Train job not found")
        except Invalid as error:
            return refusal(422, "Invalid", error.message)
        except ApiError as error:
            log.warning("event=progress_failed trainjob=%s/%s error=%r", report.namespace, report.name, error.message)
            return refusal(500, "InternalError", "Internal error")
        return 200, {"trainerStatus": status}

    def _may_report(self, report: Report) -> bool:
        try:
            claims = self._tokens.verify(report.token or "", progress_audience(report.namespace, report.name))
        except ApiError:
            return False
        pod = claims.get("kubernetes.io")
        return isinstance(pod, dict) and pod.get("namespace") == report.namespace

    def _store(self, report: Report, trainer_status: Obj) -> None:
        """Each report replaces the one before; the rest of the status stays."""
        with self._server.store.locked():
            job = self._server.get(TRAINJOB, report.namespace, report.name).object
            changed = {**job, "status": {**(job.get("status") or {}), "trainerStatus": copy_of(trainer_status)}}
            self._server.update(TRAINJOB, report.namespace, report.name, changed, WriteOptions(status=True))


def refusal(code: int, reason: str, message: str) -> tuple[int, Obj]:
    """An answer that is not a success, in the status server's own form (it leaves kind and apiVersion out)."""
    return code, {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def parse_report(body: bytes, now: str) -> Obj | None:
    """The trainerStatus of a report with unknown fields left out; None when it says nothing.

    Raises ValueError for what is no report at all, down to a field of the wrong type.
    """
    content = orjson.loads(body)
    if not isinstance(content, dict):
        raise ValueError("a report is an object")
    given = content.get("trainerStatus")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("trainerStatus is an object")
    status: Obj = {}
    for name in ("progressPercentage", "estimatedRemainingSeconds"):
        if given.get(name) is not None:
            status[name] = _whole(given[name])
    if given.get("metrics") is not None:
        if not isinstance(given["metrics"], list):
            raise ValueError("metrics is a list")
        status["metrics"] = [_metric(entry) for entry in given["metrics"]]
    stamp = given.get("lastUpdatedTime")
    if stamp is not None and not isinstance(stamp, str):
        raise ValueError("lastUpdatedTime is a time")
    status["lastUpdatedTime"] = rfc3339(parse_time(stamp)) if stamp else now
    return status


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT32 - 1 <= value <= _INT32:
        raise ValueError("a whole number was expected")
    return value


def _metric(entry: Any) -> Obj:
    if not isinstance(entry, dict):
        raise ValueError("a metric is an object")
    name, value = entry.get("name", ""), entry.get("value", "")
    if not isinstance(name, str) or not isinstance(value, str):
        raise ValueError("name and value of a metric are strings")
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
