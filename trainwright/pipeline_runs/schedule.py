"""Schedules, recurring runs in Kubeflow Pipelines: created once, replaced when they change, and deleted.

Servers cannot update a recurring run, and allow several of one name. The newest of a name is the schedule, and each call deletes
older ones. So a call that is interrupted leaves at most an older one beside the new one, which the next call deletes; and of
several calls at the same time, none deletes what was created after its own: one always stays.

A server deletes the workflows of a recurring run with it, and with them the TrainJobs of its runs, whose state is never updated again.
So one with runs in progress is only disabled, and deleted by a later call.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.cron import CronExpression
from trainwright.pipeline_runs.errors import BadParameters, BadSchedule, ServerError
from trainwright.pipeline_runs.parameters import check_submitted, check_values
from trainwright.pipeline_runs.run_states import FINAL_STATES, state_of
from trainwright.pipeline_runs.server import PipelineServer
from trainwright.pipeline_runs.uploads import UploadedPipeline, experiment_id, experiment_name, upload

RUN_ID = "run_id"
_MARK = "Created by trainwright schedule kfp, content sha256:"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_ACCOUNT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_ENABLED, _DISABLED = "ENABLE", "DISABLE"
_ORPHAN = "ORPHAN"
"""Leaves the workflows of a deleted recurring run, where the server knows it: for a run that starts between look-up and deletion."""
_NOT_FOUND = 404


@dataclass(frozen=True)
class Schedule:
    """What a schedule is to be. No run is caught up on, at most one runs at a time, and no task is taken from the cache."""

    name: str
    pipeline: CompiledPipeline
    cron: CronExpression
    values: dict[str, Any] = field(default_factory=dict)
    experiment: str = ""
    service_account: str = ""
    is_enabled: bool = True


@dataclass(frozen=True)
class ScheduleOutcome:
    """What a call did: created, replaced, enabled, disabled, unchanged or deleted.

    `removed` are ids of recurring runs. `runs_in_progress` are ids of runs whose recurring run is disabled, and not deleted yet.
    """

    action: str
    name: str
    recurring_run_id: str = ""
    version_name: str = ""
    removed: tuple[str, ...] = ()
    runs_in_progress: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Removal:
    removed: tuple[str, ...]
    runs_in_progress: tuple[str, ...]


def checked_schedule_name(name: str) -> str:
    """Return the name of a schedule. Raises BadSchedule."""
    if not _NAME.fullmatch(name):
        raise BadSchedule(
            f"name: {name[:80]!r}: 1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
        )
    return name


def check_schedule(schedule: Schedule) -> None:
    """Check everything that needs no server. Raises BadSchedule and BadParameters."""
    checked_schedule_name(schedule.name)
    if schedule.service_account and not _ACCOUNT.fullmatch(schedule.service_account):
        raise BadSchedule(f"service account: {schedule.service_account[:80]!r} is not the name of one")
    parameter = schedule.pipeline.parameters.get(RUN_ID)
    if RUN_ID in schedule.values or (parameter is not None and (parameter.is_required or parameter.default)):
        raise BadParameters(
            [
                f"{RUN_ID}: every run of a schedule needs an id of its own, and parameters are the same for all, since servers "
                "replace no placeholders in them: a second run would join the first, or skip its work; leave it empty"
            ]
        )
    check_submitted(schedule.values)
    check_values(schedule.pipeline.parameters, schedule.values)


def set_schedule(server: PipelineServer, schedule: Schedule) -> ScheduleOutcome:
    """Create a schedule, or replace it if it differs; the same call again changes nothing.

    Raises BadSchedule, also if a recurring run of this name was created by others, BadParameters, and ServerError.
    """
    check_schedule(schedule)
    pipeline = schedule.pipeline.without_cache()
    experiment = experiment_name(schedule.experiment)
    before = _existing(server, schedule.name)
    version = upload(server, pipeline)
    body = _body(schedule, version, experiment_id(server, experiment), _content_digest(schedule, pipeline, experiment))
    body |= server.in_namespace
    newest = max(before, key=_age_order, default=None)
    if newest is not None and _is_same(newest, body):
        action, current = _set_mode(server, newest, body["mode"]), newest
        removal = _remove(server, before, keep=newest)
    else:
        action, current = "replaced" if before else "created", _create(server, body, before)
        older = [*before, *(each for each in _existing(server, schedule.name) if _created(each) < _created(current))]
        removal = _remove(server, older, keep=current)
    return ScheduleOutcome(
        action,
        schedule.name,
        current["recurring_run_id"],
        version.version_name,
        removal.removed,
        removal.runs_in_progress,
    )


def delete_schedule(server: PipelineServer, name: str) -> ScheduleOutcome:
    """Delete a schedule, or only disable it while it has runs in progress, which continue.

    Raises BadSchedule if there is none, or others have created it, and ServerError.
    """
    existing = _existing(server, checked_schedule_name(name))
    if not existing:
        where = f" in the namespace {server.namespace}" if server.namespace else ""
        raise BadSchedule(f"name: {server.address} has no schedule {name!r}{where}; nothing was deleted")
    removal = _remove(server, existing, keep=None)
    action = "disabled" if removal.runs_in_progress else "deleted"
    return ScheduleOutcome(action, name, removed=removal.removed, runs_in_progress=removal.runs_in_progress)


def _existing(server: PipelineServer, name: str) -> list[Obj]:
    """Return the recurring runs of this name, in any experiment."""
    api = server.client.recurring_runs
    found = server.named(
        api.recurring_run_service_list_recurring_runs,
        "recurring_runs",
        "V2beta1ListRecurringRunsResponse",
        name,
        **server.in_namespace,
    )
    if foreign := [each for each in found if not str(each.get("description", "")).startswith(_MARK)]:
        ids = ", ".join(str(each.get("recurring_run_id")) for each in foreign)
        raise BadSchedule(
            f"name: {name!r} is the name of a recurring run that was not created by this command ({ids}); "
            "choose another name, or delete that one"
        )
    return found


def _content_digest(schedule: Schedule, pipeline: CompiledPipeline, experiment: str) -> str:
    content = {
        "pipeline": pipeline.name,
        "digest": pipeline.digest,
        "parameters": schedule.values,
        "cron": schedule.cron.text,
        "experiment": experiment,
        "service_account": schedule.service_account,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _body(schedule: Schedule, version: UploadedPipeline, experiment: str, digest: str) -> Obj:
    body: Obj = {
        "display_name": schedule.name,
        "description": f"{_MARK}{digest}",
        "experiment_id": experiment,
        "pipeline_version_reference": version.reference,
        "runtime_config": {"parameters": schedule.values},
        "trigger": {"cron_schedule": {"cron": schedule.cron.text}},
        "mode": _ENABLED if schedule.is_enabled else _DISABLED,
        "max_concurrency": "1",
        "no_catchup": True,
    }
    return body | ({"service_account": schedule.service_account} if schedule.service_account else {})


def _is_same(existing: Obj, body: Obj) -> bool:
    """Whether a recurring run has this content, whatever its mode. Servers fill in defaults, so that its digest is compared."""
    reference = existing.get("pipeline_version_reference") or {}
    return (
        existing.get("description") == body["description"]
        and existing.get("experiment_id") == body["experiment_id"]
        and all(reference.get(key) == value for key, value in body["pipeline_version_reference"].items())
    )


def _set_mode(server: PipelineServer, existing: Obj, mode: str) -> str:
    if existing.get("mode") == mode:
        return "unchanged"
    api = server.client.recurring_runs
    enables = mode == _ENABLED
    change = api.recurring_run_service_enable_recurring_run if enables else api.recurring_run_service_disable_recurring_run
    server.get(change, existing["recurring_run_id"])
    return "enabled" if enables else "disabled"


def _create(server: PipelineServer, body: Obj, before: list[Obj]) -> Obj:
    """Create a recurring run; one of an attempt that lost its answer is taken for it."""
    known = {each["recurring_run_id"] for each in before}
    attempts = 0

    def attempt() -> Obj:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            for each in _existing(server, body["display_name"]):
                if each["recurring_run_id"] not in known and _is_same(each, body):
                    return each
        return server.send(
            server.client.recurring_runs.recurring_run_service_create_recurring_run, body, answer="V2beta1RecurringRun"
        )

    created = server.retried(attempt)
    if not created.get("recurring_run_id"):
        raise ServerError(f"{server.address}: the answer has no recurring_run_id", status=200)
    return created


def _remove(server: PipelineServer, recurring_runs: list[Obj], *, keep: Obj | None) -> _Removal:
    """Disable recurring runs but one, and delete those without runs in progress. Each may be gone already."""
    kept = keep["recurring_run_id"] if keep is not None else None
    unwanted = {str(each["recurring_run_id"]): each for each in recurring_runs if each["recurring_run_id"] != kept}
    removed: list[str] = []
    in_progress: list[str] = []
    for one, recurring_run in unwanted.items():
        if runs := _disabled_with_runs(server, one, recurring_run):
            in_progress += runs
        else:
            _delete(server, one)
            removed.append(one)
    return _Removal(tuple(removed), tuple(in_progress))


def _disabled_with_runs(server: PipelineServer, key: str, recurring_run: Obj) -> list[str]:
    """Disable a recurring run, so that no further run starts, and return the ids of its runs in progress."""
    try:
        server.get(server.client.recurring_runs.recurring_run_service_disable_recurring_run, key)
    except ServerError as error:
        if error.status != _NOT_FOUND:
            raise
        return []
    runs = server.matching(
        server.client.runs.run_service_list_runs,
        "runs",
        "V2beta1ListRunsResponse",
        "recurring_run_id",
        key,
        experiment_id=recurring_run["experiment_id"],
    )
    return [str(run["run_id"]) for run in runs if state_of(run) not in FINAL_STATES]


def _delete(server: PipelineServer, key: str) -> None:
    try:
        server.get(server.client.recurring_runs.recurring_run_service_delete_recurring_run, key, propagation_policy=_ORPHAN)
    except ServerError as error:
        if error.status != _NOT_FOUND:
            raise


def _created(recurring_run: Obj) -> str:
    """Return when it was created, in seconds as servers keep it; texts of one form, which compare as times."""
    return str(recurring_run.get("created_at", ""))[:19]


def _age_order(recurring_run: Obj) -> tuple[str, str]:
    return _created(recurring_run), str(recurring_run["recurring_run_id"])
