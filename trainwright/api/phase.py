"""How far a TrainJob is: its phase, the same for all who show it, and the verdict of the client that has given it up. Pure.

The verdict is an annotation, since conditions belong to the controller. It is written in the request that suspends the job, and counts
while the job stays suspended by that request: a queue or a person may start the job again, and its controller never reads it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.objects import Obj, annotations_of, generation_of, labels_of
from trainwright.api.times import is_moment
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import Unreadable, read_json

_MAX_BYTES = 16 * 1024
"""All annotations of an object may have 256 KiB, and in JobSet mode the TrainJob is one of them."""
_MAX_TEXT, _MAX_LINE, _MAX_LINES = 1000, 300, 20


class Phase(enum.StrEnum):
    Queued = "Queued"
    Starting = "Starting"
    Running = "Running"
    Restarting = "Restarting"
    Suspended = "Suspended"
    Succeeded = "Succeeded"
    Failed = "Failed"

    @property
    def is_final(self) -> bool:
        return self in (Phase.Succeeded, Phase.Failed)


def phase_of(trainjob: Obj, jobset: Obj | None = None) -> Phase:
    """Return the phase; a restart is distinguished from a start only with the JobSet.

    A job that its client has given up is Failed, whoever asks: see `verdict_of`.
    """
    if is_true(trainjob, "Complete"):
        return Phase.Succeeded
    if is_true(trainjob, "Failed") or verdict_of(trainjob) is not None:
        return Phase.Failed
    if trainjob["spec"].get("suspend"):
        return Phase.Queued if names.QUEUE_LABEL in labels_of(trainjob) else Phase.Suspended
    if jobset is not None and is_true(jobset, "RestartingJobSet"):
        return Phase.Restarting
    for entry in (trainjob.get("status") or {}).get("jobsStatus") or []:
        if entry.get("name") not in names.INITIALIZERS and entry.get("ready"):
            return Phase.Running
    return Phase.Starting


@dataclass(frozen=True)
class FailedPod:
    """How a pod failed, as its status said it, and the last lines of its log."""

    name: str
    step: str = ""
    index: int = 0
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    disruption: str = ""
    failed_probe: str = ""
    memory_limit: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Why a job was given up. `error` is the name of the class that the client raised, so that others raise the same one."""

    reason: str
    message: str
    error: str = ""
    time: str = ""
    """RFC 3339."""
    pods: tuple[FailedPod, ...] = ()
    lines: tuple[str, ...] = ()
    """The last lines of the training, where no pod has failed."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the error needs beside its message, as JSON."""
    resumable: bool = False
    """Whether a retry of the step resumes this very job, as after a deadline; otherwise it submits the next attempt."""
    is_superseded: bool = False
    """Whether the step submits another job, which writes to the same folder: this one is not resumed."""

    def annotation(self, generation: int) -> dict[str, str]:
        """Return the annotation for the generation of the spec in which the job is suspended, at most 16 KiB of it."""
        for lines, pods, characters in ((_MAX_LINES, 4, _MAX_TEXT), (8, 4, _MAX_TEXT), (2, 4, 500), (0, 4, 200), (0, 1, 200)):
            text = self._as_json(generation, lines, pods, characters)
            if len(text.encode()) <= _MAX_BYTES:
                return {names.VERDICT_ANNOTATION: text}
        shortest = replace(self, message=one_line(self.message)[:200], pods=(), lines=(), details={})
        return {names.VERDICT_ANNOTATION: shortest._as_json(generation, 0, 0, 200)}

    def _as_json(self, generation: int, lines: int, pods_kept: int, characters: int) -> str:
        pods = [
            {
                "name": pod.name,
                "step": pod.step,
                "index": pod.index,
                "container": pod.container,
                "exitCode": pod.exit_code,
                "reason": pod.reason,
                "message": one_line(pod.message)[:characters],
                "disruption": pod.disruption,
                "failedProbe": one_line(pod.failed_probe)[:characters],
                "memoryLimit": pod.memory_limit,
                "lines": _cut(pod.lines, lines),
            }
            for pod in self.pods[:pods_kept]
        ]
        found = {
            "reason": self.reason,
            "message": one_line(self.message)[:characters],
            "error": self.error,
            "time": self.time,
            "pods": [{key: value for key, value in pod.items() if value not in ("", [], None)} for pod in pods],
            "lines": _cut(self.lines, lines),
            "details": dict(self.details),
            "resumable": self.resumable,
            "superseded": self.is_superseded,
        }
        written = {"generation": generation, **{key: value for key, value in found.items() if value}}
        return json.dumps(written, ensure_ascii=False, allow_nan=False)


def verdict_of(trainjob: Obj) -> Verdict | None:
    """Return the verdict on a job if it counts: a client has suspended the job with it, and its spec has not changed since.

    An annotation that cannot be read does not count. None for any other job.
    """
    if not (trainjob.get("spec") or {}).get("suspend") or is_finished(trainjob):
        return None
    verdict = written_verdict(trainjob)
    if verdict is None or verdict.is_superseded:
        return verdict
    return verdict if is_suspended_by_us(trainjob) else None


def is_suspended_by_us(obj: Obj) -> bool:
    """Whether a TrainJob or JobSet is suspended, by Trainwright, and its spec has not changed since."""
    mark = annotations_of(obj).get(names.SUSPENDED_BY_ANNOTATION)
    return bool(obj["spec"].get("suspend")) and mark == names.suspended_by_us(generation_of(obj))


def is_superseded(trainjob: Obj) -> bool:
    """Whether another job of the same step takes the place of this one, which may have ended."""
    verdict = written_verdict(trainjob)
    return verdict is not None and verdict.is_superseded


def superseded(message: str) -> Verdict:
    """Return the verdict on a job that another one of its step replaces."""
    return Verdict("Superseded", message, is_superseded=True)


def written_verdict(trainjob: Obj) -> Verdict | None:
    """Return the verdict that was written for this generation of the spec, whether it counts or not."""
    text = annotations_of(trainjob).get(names.VERDICT_ANNOTATION)
    if not text or len(text) > _MAX_BYTES:
        return None
    try:
        found = read_json(text)
    except Unreadable:
        return None
    if not isinstance(found, dict) or _number(found, "generation") != generation_of(trainjob) or not _text(found, "reason"):
        return None
    details = found.get("details")
    return Verdict(
        _text(found, "reason"),
        _text(found, "message"),
        _text(found, "error"),
        moment if is_moment(moment := _text(found, "time")) else "",
        tuple(_failed_pod(each) for each in _entries(found, "pods") if isinstance(each, dict)),
        _texts(found, "lines"),
        details if isinstance(details, dict) else {},
        found.get("resumable") is True,
        found.get("superseded") is True,
    )


def _failed_pod(found: Mapping[str, Any]) -> FailedPod:
    return FailedPod(
        _text(found, "name"),
        _text(found, "step"),
        _number(found, "index") or 0,
        _text(found, "container"),
        _number(found, "exitCode"),
        _text(found, "reason"),
        _text(found, "message"),
        _text(found, "disruption"),
        _text(found, "failedProbe"),
        _text(found, "memoryLimit"),
        _texts(found, "lines"),
    )


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _number(found: Mapping[str, Any], key: str) -> int | None:
    value = found.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _entries(found: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = found.get(key)
    return value if isinstance(value, list) else []


def _texts(found: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(entry for entry in _entries(found, key) if isinstance(entry, str))


def _cut(lines: Sequence[str], count: int) -> list[str]:
    return ["".join(filter(str.isprintable, line))[:_MAX_LINE] for line in lines[-count:]] if count else []
