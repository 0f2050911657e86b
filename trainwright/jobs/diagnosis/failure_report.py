"""The report of a failed TrainJob, as text for people and as data for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from trainwright.api.objects import Obj
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.diagnosis.waiting_reason import NOTHING_SEEN, WaitingReason
from trainwright.jobs.logs.log_excerpt import LogPattern, shortened
from trainwright.jobs.state.pods import BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED, FailingJob, Restarts
from trainwright.jobs.state.usage import NO_USAGE, Usage
from trainwright.text.foreign_texts import one_line, plain

MAX_PODS = 4
"""Pods whose logs are read and shown."""
_WIDTH = 2000
"""Characters of a line: a termination message may have 4096."""


@dataclass(frozen=True)
class FailureReport:
    """A failure, as text for people and as data for programs. Parts that could not be read are listed in `unread`."""

    namespace: str
    name: str
    uid: str
    reason: str
    """Of the condition Failed; empty for a job that has not failed yet."""
    message: str
    jobset: str = ""
    """`Reason: message` of the JobSet, if it differs from the TrainJob's."""
    jobs: tuple[FailingJob, ...] = ()
    """The Jobs that have failed, the first one first."""
    pods: tuple[PodFailure, ...] = ()
    """The failed pods, the cause before its consequences, also those that no longer exist; the logs of the first four are read."""
    earlier: tuple[PodFailure, ...] = ()
    """Failures before the last restart, or of pods that were replaced, oldest first."""
    lines: tuple[str, ...] = ()
    """The last lines of the training, if they are known and no pod has failed."""
    waiting: WaitingReason | None = None
    """What the job was waiting for, if no pod has failed; None if that could not be read."""
    events: tuple[str, ...] = ()
    restarts: Restarts | None = None
    usage: Usage = NO_USAGE
    preemptions: int = 0
    """Number of earlier attempts of the step that were preempted."""
    unread: tuple[str, ...] = ()

    @property
    def cause(self) -> PodFailure | None:
        """The pod that failed first."""
        return self.pods[0] if self.pods else None

    @property
    def headline(self) -> str:
        """The cause in one line: how the first pod failed, with its error, such as `pod a-node-0-0 exited 1: ValueError: no rows`.

        Without a pod that failed, and at a deadline, the reason and message of the condition.
        """
        if self.cause is None or self.exceeded_deadline or (self.cause.exit_code is None and not self.cause.disruption):
            return f"{self.reason}: {self.message}" if self.reason else NOTHING_SEEN
        return one_line(f"pod {self.cause.name} {self.cause.with_last_word(self.cause.lines).describe()}")

    @property
    def cannot_run(self) -> bool:
        """Whether the launcher of a pod has found that the program can never run."""
        return any(failure.cannot_run for pod in self.pods for failure in (pod, *pod.other_containers))

    @property
    def exceeded_deadline(self) -> bool:
        """Whether the cluster ended the job at an activeDeadlineSeconds."""
        return DEADLINE_EXCEEDED in (self.reason, *(job.reason for job in self.jobs[:1]))

    @property
    def log_patterns(self) -> tuple[LogPattern, ...]:
        """The error patterns found in the logs, each once; see `log_patterns`."""
        failures = (failure for pod in self.pods for failure in (pod, *pod.other_containers))
        return tuple({pattern.name: pattern for failure in failures for pattern in failure.log_patterns}.values())

    @property
    def is_transient(self) -> bool:
        """Whether all error patterns of the cause are transient."""
        log_patterns = self.cause.log_patterns if self.cause else ()
        return bool(log_patterns) and all(pattern.is_transient for pattern in log_patterns)

    def __str__(self) -> str:
        return plain("\n".join(shortened(line, _WIDTH) for line in self._lines()))

    def as_dict(self) -> Obj:
        """Return the report as a JSON object."""
        return {
            "trainjob": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
            "headline": self.headline,
            "condition": {"reason": self.reason, "message": self.message},
            "jobset": self.jobset,
            "jobs": [asdict(job) for job in self.jobs],
            "pods": [pod.as_dict() for pod in self.pods],
            "earlier": [pod.as_dict() for pod in self.earlier],
            "log": list(self.lines),
            "waiting": asdict(self.waiting) if self.waiting else None,
            "signs": [pattern.name for pattern in self.log_patterns],
            "events": list(self.events),
            "restarts": asdict(self.restarts) if self.restarts else None,
            "preemptions": self.preemptions,
            "nodeHours": round(self.usage.node_hours, 4),
            "gpuHours": round(self.usage.gpu_hours, 4),
            **({"cost": round(self.usage.cost, 4), "currency": self.usage.currency} if self.usage.cost is not None else {}),
            "unread": list(self.unread),
        }

    def _lines(self) -> Iterator[str]:
        yield f"TrainJob {self.namespace}/{self.name} {'failed' if self.reason else 'fails'}: {self.headline}"
        if self.reason and self.headline != (reason := f"{self.reason}: {self.message}"):
            yield reason
        if self.jobset:
            yield f"JobSet: {self.jobset}"
        yield from (f"Job {job}" for job in self.jobs[:1] if job.reason != BACKOFF_LIMIT_EXCEEDED)
        for pod in self.pods[:MAX_PODS]:
            for failure in (pod, *pod.other_containers):
                yield _failure_line(failure)
                yield from (f"    {line}" for line in failure.lines)
        if len(self.pods) > MAX_PODS:
            yield f"... and {len(self.pods) - MAX_PODS} more pods"
        yield from (f"    {line}" for line in self.lines)
        yield from (f"before a restart: {_failure_line(pod)}" for pod in self.earlier[-MAX_PODS:])
        seen = self.waiting.text if self.waiting and not self.pods else ""
        seen = "" if self.exceeded_deadline and seen == NOTHING_SEEN else seen
        if seen:
            yield f"last seen: {seen}"
        yield from (f"event: {event}" for event in self.events if event not in seen)
        if used := self._used():
            yield f"used: {used}"
        yield from (f"({text})" for text in self.unread)

    def _used(self) -> str:
        parts = []
        if self.restarts is not None and (self.restarts.used or self.restarts.allowed):
            parts.append(f"{self.restarts.used} of {self.restarts.allowed} restarts")
        if self.preemptions:
            parts.append(f"{self.preemptions} preemptions")
        return ", ".join([*parts, *self.usage.parts()])


def _failure_line(failure: PodFailure) -> str:
    container = f", container {failure.container}" if failure.container else ""
    return f"pod {failure.name} (step {failure.step}{container}) {failure.describe()}"
