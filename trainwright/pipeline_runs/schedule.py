"""Schedules, recurring runs in Kubeflow Pipelines: created once, replaced when they change, and deleted.

Servers cannot update a recurring run, and allow several of one name. The newest of a name is the schedule, and each call deletes
older ones. So a call that is interrupted leaves at most an older one beside the new one, which the next call deletes; and of
several calls at the same time, none deletes what was created after its own: one always stays.

A server deletes the workflows of a recurring run with it, and with them the TrainJobs of its runs, whose state is never updated again.
So one with runs in progress is only disabled, and deleted by a later call.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadParameters, BadSchedule, ServerError
from trainwright.pipeline_runs.parameters import check_submitted, check_values
from trainwright.pipeline_runs.runs import FINAL_STATES
from trainwright.pipeline_runs.server import PipelineServer, experiment_name

RUN_ID = "run_id"
_MARK = "Created by trainwright schedule kfp, content sha256:"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_ACCOUNT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SECOND = re.compile(r"[0-5]?[0-9]")


@dataclass(frozen=True)
class Schedule:
    """What a schedule is to be. No run is caught up on, at most one runs at a time, and no task is taken from the cache.

    Raises BadSchedule and BadParameters for what needs no server to be found wrong.
    """

    name: str
    pipeline: CompiledPipeline
    cron: str
    """Of six fields."""
    values: dict[str, Any] = field(default_factory=dict)
    experiment: str = ""
    service_account: str = ""
    is_enabled: bool = True

    def __post_init__(self) -> None:
        checked_schedule_name(self.name)
        if self.service_account and not _ACCOUNT.fullmatch(self.service_account):
            raise BadSchedule(f"service account: {self.service_account[:80]!r} is not the name of one")
        parameter = self.pipeline.parameters.get(RUN_ID)
        if RUN_ID in self.values or (parameter is not None and (parameter.is_required or parameter.default)):
            problem = (
                f"{RUN_ID}: every run of a schedule needs an id of its own, and parameters are the same for all, since servers "
                "replace no placeholders in them: a second run would join the first, or skip its work; leave it empty"
            )
            raise BadParameters([problem])
        check_submitted(self.values)
        check_values(self.pipeline.parameters, self.values)


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


def checked_schedule_name(name: str) -> str:
    """Return the name of a schedule. Raises BadSchedule."""
    if not _NAME.fullmatch(name):
        raise BadSchedule(
            f"name: {name[:80]!r}: 1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
        )
    return name


def cron_of_six_fields(text: str) -> str:
    """Return a cron expression with six fields, of which the first are seconds; of five, the seconds are 0. Raises BadSchedule.

    A server takes five as seconds, minutes, hours, day and month: `0 3 * * *` would start a run every hour. It checks all else.
    """
    words = text.split()
    if len(words) not in (5, 6):
        expected = "second minute hour day-of-month month day-of-week, such as '0 0 3 * * *' for every day at 03:00:00"
        raise BadSchedule(f"cron: {text[:80]!r} has {len(words)} fields; expected six: {expected}")
    words = ["0", *words][-6:]
    if not _SECOND.fullmatch(words[0]):
        raise BadSchedule(f"cron: second: {words[0]!r} is not one number from 0 to 59; others start several runs a minute")
    return " ".join(words)


def set_schedule(server: PipelineServer, schedule: Schedule) -> ScheduleOutcome:
    """Create a schedule, or replace it if it differs; the same call again changes nothing.

    Raises BadSchedule, also if a recurring run of this name was created by others, and ServerError.
    """
    client, name, before = server.client, schedule.name, _existing(server, schedule.name)
    version = server.upload(schedule.pipeline.without_cache())
    settings = {
        "experiment_id": server.experiment_id(experiment_name(schedule.experiment)),
        "job_name": name,
        "params": schedule.values,
        "cron_expression": schedule.cron,
        "pipeline_id": version.pipeline_id,
        "version_id": version.pipeline_version_id,
        "service_account": schedule.service_account or None,
        "no_catchup": True,
    }
    description = _MARK + hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    current = max(before, key=_age, default=None)
    if current is not None and current.description == description:
        action = _set_enabled(server, current, schedule.is_enabled)
    else:
        known = {each.recurring_run_id for each in before}
        current = server.find_or_create(
            lambda: [
                each for each in _existing(server, name) if each.description == description and each.recurring_run_id not in known
            ],
            lambda: client.create_recurring_run(description=description, enabled=schedule.is_enabled, **settings),
        )
        action = "replaced" if before else "created"
        before += [each for each in _existing(server, name) if _age(each)[0] < _age(current)[0]]
    removed, in_progress = _remove(server, [each for each in before if each.recurring_run_id != current.recurring_run_id])
    return ScheduleOutcome(action, name, current.recurring_run_id, version.display_name, removed, in_progress)


def delete_schedule(server: PipelineServer, name: str) -> ScheduleOutcome:
    """Delete a schedule, or only disable it while it has runs in progress, which continue.

    Raises BadSchedule if there is none, or others have created it, and ServerError.
    """
    existing = _existing(server, checked_schedule_name(name))
    if not existing:
        where = f" in the namespace {server.namespace}" if server.namespace else ""
        raise BadSchedule(f"name: {server.address} has no schedule {name!r}{where}; nothing was deleted")
    removed, in_progress = _remove(server, existing)
    return ScheduleOutcome("disabled" if in_progress else "deleted", name, removed=removed, runs_in_progress=in_progress)


def _existing(server: PipelineServer, name: str) -> list[Any]:
    """Return the recurring runs of this name, in any experiment."""
    found = server.find(server.client.list_recurring_runs, "display_name", name, namespace=server.namespace)
    if ids := [each.recurring_run_id for each in found if not str(each.description).startswith(_MARK)]:
        raise BadSchedule(
            f"name: {name!r} is the name of a recurring run that was not created by this command ({', '.join(ids)}); "
            "choose another name, or delete that one"
        )
    return found


def _set_enabled(server: PipelineServer, recurring_run: Any, enabled: bool) -> str:
    if recurring_run.mode == ("ENABLE" if enabled else "DISABLE"):
        return "unchanged"
    change = server.client.enable_recurring_run if enabled else server.client.disable_recurring_run
    server.retried(lambda: change(recurring_run.recurring_run_id))
    return "enabled" if enabled else "disabled"


def _remove(server: PipelineServer, recurring_runs: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Disable recurring runs, so that no further run starts, and delete those without runs in progress.

    Returns ids of the deleted ones, and of the runs in progress.
    """
    client, removed, in_progress = server.client, list[str](), list[str]()
    delete = client.recurring_runs.recurring_run_service_delete_recurring_run
    for key, experiment in {each.recurring_run_id: each.experiment_id for each in recurring_runs}.items():
        if _exists(server, functools.partial(client.disable_recurring_run, key)):
            runs = server.find(client.list_runs, "recurring_run_id", key, experiment_id=experiment)
            # to delete it would delete these runs' workflows
            if unfinished := [run.run_id for run in runs if run.state not in FINAL_STATES]:
                in_progress += unfinished
                continue
        # Servers that know the policy leave the workflow of a run that has started since the look-up. kfp's method does not take it.
        _exists(server, functools.partial(delete, key, propagation_policy="ORPHAN"))
        removed.append(key)
    return tuple(removed), tuple(in_progress)


def _exists(server: PipelineServer, change: Callable[[], Any]) -> bool:
    """Change something, unless it is gone already; return whether it was there."""
    try:
        server.retried(change)
    except ServerError as error:
        if error.status != 404:  # 404: somebody has deleted it since it was listed
            raise
        return False
    return True


def _age(recurring_run: Any) -> tuple[str, str]:
    """Return when it was created, in seconds as servers keep it, and its id."""
    return str(recurring_run.created_at)[:19], recurring_run.recurring_run_id
