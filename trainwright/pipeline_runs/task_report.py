"""Which tasks of a run have failed, and what the server says of them. Pure.

Servers up to 2.17 list the pods of the workflow as tasks, without the messages of their failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.objects import Obj
from trainwright.api.one_line import one_line
from trainwright.storage.foreign_texts import without_credentials

_FAILED = ("FAILED", "ERROR", "CANCELED")
_INNER = ("executor", "root", "driver")
"""Names of pods that every task has; the task itself is listed beside them."""
_MOST = 50
_MAX_MESSAGE = 1000


@dataclass(frozen=True)
class FailedTask:
    """A task that failed; the message is empty if the server gives none."""

    name: str
    state: str
    message: str
    pods: tuple[str, ...] = ()


def shown_tasks(run: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield the tasks of a pipeline with their names, without drivers, executors and the workflow itself."""
    root = str(run.get("display_name", ""))
    for task in _tasks(run):
        name = str(task.get("display_name") or "")
        if name and name not in (*_INNER, root) and not name.endswith("-driver"):
            yield one_line(name), task


def failed_tasks(run: Obj) -> list[FailedTask]:
    """Return the tasks that failed, the first to fail first: those around it end later."""
    named = {id(task): name for name, task in shown_tasks(run)}
    failed = [task for task in _tasks(run) if task.get("state") in _FAILED]
    failed.sort(key=lambda task: str(task.get("end_time") or "9"))
    found = []
    for task in failed:
        message = _message(task)
        name = named.get(id(task), "")
        if not name and not message:
            continue
        name = name or _owner(run, task) or one_line(task.get("display_name"))
        found.append(FailedTask(name, str(task["state"]), message, _pods(task)))
    return found[:_MOST]


def failure_message(run: Obj) -> str:
    """Return what the server says of the run as a whole, or an empty text."""
    was_stopped = any(entry.get("state") == "CANCELING" for entry in run.get("state_history") or [])
    return _message(run) or ("it was terminated" if was_stopped else "")


def _owner(run: Obj, task: Obj) -> str:
    """Return the name of the task that an executor or a driver belongs to, if the server links them."""
    name = str(task.get("display_name") or "")
    if name.endswith("-driver"):
        return one_line(name.removesuffix("-driver"))
    keys = {task.get("task_id"), task.get("pod_name")} - {None, ""}
    for owner_name, owner in shown_tasks(run):
        children = {child.get(key) for child in owner.get("child_tasks") or [] for key in ("task_id", "pod_name")}
        if children & keys or (owner.get("task_id") and owner["task_id"] == task.get("parent_task_id")):
            return owner_name
    return ""


def _message(obj: Obj) -> str:
    """Return the error of a run or a task, or of the last of its states that has one."""
    for holder in (obj, *reversed(obj.get("state_history") or [])):
        error = holder.get("error")
        if isinstance(error, dict) and error.get("message"):
            return without_credentials(str(error["message"])[:_MAX_MESSAGE])
    return ""


def _pods(task: Obj) -> tuple[str, ...]:
    detail = task.get("executor_detail") or {}
    pods = [task.get("pod_name"), detail.get("main_job"), *(detail.get("failed_main_jobs") or [])]
    return tuple(dict.fromkeys(one_line(pod) for pod in pods if pod))


def _tasks(run: Obj) -> list[Obj]:
    return [task for task in (run.get("run_details") or {}).get("task_details") or [] if isinstance(task, dict)]
