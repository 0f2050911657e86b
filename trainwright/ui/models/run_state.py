"""Whether a run goes on or has ended, and how: by its record, its newest evaluation and its TrainJobs. Pure.

Not every run has a step that records its end, and TrainJobs may be deleted while the run's folder stays. A run succeeded if it was
evaluated, or trained and then exported; without evidence the state is `ended` or `unknown`: a step without a TrainJob can have failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import is_moment, parse_time
from trainwright.jobs.state.attempts import attempt_of, was_preempted, was_retried
from trainwright.ui.jobs.row import final_condition
from trainwright.workspace.retention import IDLE_SECONDS
from trainwright.workspace.run_record import RunRecord

QUIET_SECONDS = 15 * 60.0
"""The longest usual time between two steps of a run. Without activity for longer, nothing follows a TrainJob that has ended."""

State = Literal["in progress", "suspended", "succeeded", "failed", "given up", "ended", "unknown"]


class RunState(NamedTuple):
    state: State
    reason: str = ""


class Evaluated(NamedTuple):
    """The newest evaluation of a run: when its result was written, in seconds since the epoch, and whether its loss is finite."""

    at: float
    is_finite: bool


def state_of(
    record: RunRecord, jobs: Sequence[Obj] | None, evaluation: Evaluated | None, *, has_output: bool, now: float
) -> RunState:
    """Return the state of a run at the time `now`, in seconds since the epoch.

    `jobs` is None if TrainJobs cannot be listed. `has_output` is whether a training has written to the run's folder.
    """
    newest = _newest_attempts(jobs or ())
    suspended = [job for job in newest if phase_of(job) is Phase.Suspended]
    for job in newest:
        if job not in suspended and not phase_of(job).is_final:
            return RunState("in progress", f"TrainJob {name_of(job)} is {phase_of(job).lower()}")
    updated, has_ended = _seconds(record.updated), record.ended is not None
    quiet = now - max(updated, *map(_ended_at, newest), 0.0)
    evaluated_at = evaluation.at if evaluation is not None else 0.0
    failed = [job for job in newest if phase_of(job) is Phase.Failed and _ended_at(job) > evaluated_at]
    if failed and not has_ended and quiet < QUIET_SECONDS and _goes_on(failed[-1], updated):
        return RunState("in progress", f"TrainJob {name_of(failed[-1])} failed, and its step begins again")
    if record.failed:
        return RunState("failed", record.failed)
    if failed:
        return RunState("failed", f"TrainJob {name_of(failed[-1])} failed: {_message(failed[-1])}")
    if evaluation is not None and not evaluation.is_finite and (has_ended or evaluated_at >= updated):
        return RunState("failed", "the loss of its evaluation is not finite")
    if suspended:
        return _of_suspended(suspended[-1], has_ended=has_ended)
    trained = [job for job in newest if names.RUN_FOLDER_ANNOTATION in annotations_of(job)]
    if evaluation is not None and has_ended:
        return RunState("succeeded")
    if jobs is None:
        return RunState("ended" if has_ended else "unknown", _without_jobs(record, jobs))
    if trained:
        last = f"TrainJob {name_of(trained[-1])} succeeded"
        if not has_ended and quiet < QUIET_SECONDS:
            return RunState("in progress", f"{last}; the next step has not begun")
        if record.exported and updated >= _ended_at(trained[-1]):  # and not by an earlier attempt
            return RunState("succeeded", f"{last}; not evaluated")
        return RunState("ended", f"{last}; not exported")
    if has_ended or ((record.exported or has_output) and quiet >= QUIET_SECONDS):
        return RunState("ended", _without_jobs(record, jobs))
    if quiet >= IDLE_SECONDS:
        return RunState("given up", f"no TrainJob, and no activity for {quiet / 3600:.0f} hours")
    return RunState("in progress", "no TrainJob yet")


def _newest_attempts(jobs: Sequence[Obj]) -> list[Obj]:
    """Return the newest attempt of each step, the job that was created last at the end."""
    found: dict[str, Obj] = {}
    for job in sorted((job for job in jobs if not is_deleting(job)), key=_order):
        found[annotations_of(job).get(names.OWNER_ANNOTATION) or name_of(job)] = job
    return sorted(found.values(), key=_order)


def _order(job: Obj) -> tuple[str, int]:
    return str(job["metadata"].get("creationTimestamp") or ""), attempt_of(job)


def _goes_on(failed: Obj, updated: float) -> bool:
    """Whether the client of a failed job submits it again, or the run was resumed since."""
    return was_retried(failed) or was_preempted(failed) or updated > _ended_at(failed)


def _of_suspended(job: Obj, *, has_ended: bool) -> RunState:
    if reason := annotations_of(job).get(names.STOPPED_EARLY_ANNOTATION):
        return RunState("given up", f"stopped early: {reason}")
    if has_ended:
        return RunState("given up", f"it ended while TrainJob {name_of(job)} was suspended")
    return RunState("suspended", f"TrainJob {name_of(job)} is suspended, and can be resumed")


def _without_jobs(record: RunRecord, jobs: Sequence[Obj] | None) -> str:
    missing = "TrainJobs cannot be listed" if jobs is None else "its TrainJobs were deleted"
    return f"{'exported' if record.exported else 'nothing was exported'}; {missing}"


def _message(job: Obj) -> str:
    found = final_condition(job) or {}
    return f"{found.get('reason', '')}: {found.get('message', '')}".strip(": ")


def _ended_at(job: Obj) -> float:
    """Return when a job ended, in seconds since the epoch; 0 if it has not."""
    return _seconds(str((final_condition(job) or {}).get("lastTransitionTime") or ""))


def _seconds(moment: str) -> float:
    return parse_time(moment).timestamp() if is_moment(moment) else 0.0
