"""The runs of a workspace, newest first, from the records in their folders, and whether each goes on or has ended, and how. A run
without a valid record is listed, too.

The state is decided by the run's record, its newest evaluation and its TrainJobs. Not every run has a step that records its end,
and TrainJobs may be deleted while the run's folder stays. A run succeeded if it was evaluated, or trained and then exported;
without evidence the state is `ended` or `unknown`: a step without a TrainJob can have failed.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import is_moment, parse_time
from trainwright.checkpoints.training_history import METRICS
from trainwright.jobs.state.attempts import attempt_of, was_preempted, was_retried
from trainwright.storage.transfer import disk_errors
from trainwright.text.foreign_texts import one_line
from trainwright.ui.call import Json
from trainwright.ui.jobs.row import Creator, creator_of, final_condition
from trainwright.ui.models.evaluations import newest_evaluation
from trainwright.ui.models.foreign_json import shown_json, shown_text
from trainwright.ui.models.workspaces import RunJobs, WorkspaceFolder
from trainwright.workspace.layout import OUTPUT, RUNS, WorkspaceError, run_name
from trainwright.workspace.retention import IDLE_SECONDS
from trainwright.workspace.run_record import DATASET_REPORTS, RunRecord, read_run

PAGE = 50
_MAX_RUNS = 20_000
_NOBODY = Creator(kind="", name="", run="", task="", path="")
QUIET_SECONDS = 15 * 60.0
"""The longest usual time between two steps of a run. Without activity for longer, nothing follows a TrainJob that has ended."""
State = Literal["in progress", "suspended", "succeeded", "failed", "given up", "ended", "unknown"]


def list_runs(workspace: WorkspaceFolder, after: str, jobs: RunJobs | None) -> Json:
    """Return a page of the runs of a workspace; `after` is the `next` of the page before. Raises StorageError.

    `jobs` is None if TrainJobs cannot be listed.
    """
    names, is_cut = _names(workspace.path)
    found = [_read(workspace.path, name) for name in names]
    wanted = found
    if after:
        marker = next((each for each in found if each.name == after), None)
        wanted = [each for each in found if marker is None or (each.updated, each.name) < (marker.updated, marker.name)]
    page = heapq.nlargest(PAGE, wanted, key=lambda each: (each.updated, each.name))
    rows = [run_row(workspace, each.name, each.record, jobs) for each in page]
    return {"runs": rows, "total": len(found), "cut": is_cut, "next": page[-1].name if len(wanted) > PAGE else ""}


def _names(workspace: Path) -> tuple[list[str], bool]:
    """Return the names of run folders, and whether there are more. Links and hidden folders are left out."""
    found: list[str] = []
    with disk_errors(workspace / RUNS), os.scandir(workspace / RUNS) as entries:
        for entry in entries:
            if len(found) == _MAX_RUNS:
                return found, True
            if entry.is_dir(follow_symlinks=False) and _is_run_name(entry.name):
                found.append(entry.name)
    return found, False


def _is_run_name(name: str) -> bool:
    try:
        return run_name(name) == name
    except WorkspaceError:
        return False


def _read(workspace: Path, name: str) -> _Found:
    record = read_run(workspace / RUNS / name)
    return _Found(parse_time(record.updated).timestamp() if record is not None else 0.0, name, record)


class _Found(NamedTuple):
    updated: float
    name: str
    record: RunRecord | None


def run_row(workspace: WorkspaceFolder, name: str, record: RunRecord | None, jobs: RunJobs | None) -> Json:
    """Return a run as a row of the list. `evaluation` is the newest one, None without one."""
    folder = workspace.path / RUNS / name
    evaluation = newest_evaluation(workspace.path, name)
    row: Json = {
        "name": shown_text(name, 300),
        "reports": [name for name in DATASET_REPORTS if name.endswith(".md") and (folder / name).is_file()],
        "evaluation": evaluation.shown if evaluation is not None else None,
    }
    if record is None:
        return {**row, "state": "unknown", "reason": "", "creator": _NOBODY, "problem": "its folder has no valid run.json"}
    own = jobs.of(workspace, name, record) if jobs is not None else None
    evaluated = Evaluated(evaluation.at, evaluation.shown["loss"]["after"] is not None) if evaluation is not None else None
    state = state_of(record, own, evaluated, has_output=is_training(folder), now=time.time())
    return {
        **row,
        "state": state.state,
        "reason": shown_text(one_line(state.reason), 500),
        "creator": _creator(record, own or ()),
        "run": shown_text(record.run, 300),
        "owner": shown_text(record.owner, 300),
        "started": record.started,
        "updated": record.updated,
        "ended": record.ended or "",
        "dataset": shown_text(record.dataset, 200),
        "model": shown_text(record.model, 200),
        "exported": shown_text(record.exported),
        "earlier": {name: [shown_text(each, 500) for each in values] for name, values in record.earlier.items()},
        "inputs": shown_json(record.inputs),
        "problem": "",
    }


def _creator(record: RunRecord, jobs: Iterable[Obj]) -> Creator:
    """Return the DAG run or pipeline run of a run: by its TrainJobs, else by its record, which does not name pipelines."""
    found = next((each for each in map(creator_of, jobs) if each["kind"] in ("airflow", "kfp")), None)
    if found is None:
        kind, _, name = record.owner.partition("/")
        if kind == "airflow":
            found = {**_NOBODY, "kind": kind, "name": name, "run": record.run.removeprefix(f"{name}/")}
        elif kind == "kfp":
            found = {**_NOBODY, "kind": kind, "name": name or "pipeline", "run": record.run}
        else:
            return _NOBODY
    name, run = shown_text(found["name"], 300), shown_text(found["run"], 300)
    return Creator(kind=found["kind"], name=name, run=run, task="", path=shown_text(found["path"]))


def is_training(place: Path) -> bool:
    """Whether a training has written to this folder. Links do not count."""
    output, metrics = place / OUTPUT, place / METRICS
    return (output.is_dir() and not output.is_symlink()) or (metrics.is_file() and not metrics.is_symlink())


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
        found = final_condition(failed[-1]) or {}
        said = f"{found.get('reason', '')}: {found.get('message', '')}".strip(": ")
        return RunState("failed", f"TrainJob {name_of(failed[-1])} failed: {said}")
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


def _seconds(moment: str) -> float:
    return parse_time(moment).timestamp() if is_moment(moment) else 0.0


def _ended_at(job: Obj) -> float:
    """Return when a job ended, in seconds since the epoch; 0 if it has not."""
    return _seconds(str((final_condition(job) or {}).get("lastTransitionTime") or ""))


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
