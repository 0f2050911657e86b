"""Which tasks of a run have failed, and what the server says of them. Pure.

Servers up to 2.17 list the nodes of the workflow as tasks, without the messages of their failures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.task_nodes import Node, drivers_of, executors_of, groups_of, last_pod, tasks_of, time_of
from trainwright.text.foreign_texts import without_credentials

_FAILED = ("FAILED", "ERROR", "CANCELED")
_MOST = 50
_MAX_MESSAGE = 1000


@dataclass(frozen=True)
class FailedTask:
    """A task that failed, after all its attempts. The message and the pod are empty if the server does not say them."""

    name: str
    state: str
    message: str
    pod: str = ""


def failed_tasks(run: Obj, groups: frozenset[str] = frozenset()) -> list[FailedTask]:
    """Return the tasks that failed, each once, the first to fail first; a group only if nothing in it has failed.

    `groups` are the names of nested pipelines, conditions, loops and exit handlers.
    """
    tasks = tasks_of(run, groups)
    found: list[tuple[str, FailedTask]] = []
    for task in tasks:
        drivers = [node for node in task.drivers if node.state in _FAILED]
        if task.state in _FAILED or (drivers and task.state not in ("SUCCEEDED", "RUNNING")):
            nodes = [*task.executors, *drivers, *task.nodes]
            state = task.state if task.state in _FAILED else drivers[-1].state
            pod = task.pod or last_pod(drivers) or next(filter(None, (node.main_pod for node in task.nodes)), "")
            found.append((_end(nodes), FailedTask(task.name, state, _first_message(nodes), pod)))
    known = {task.name for task in tasks}
    for name, nodes in drivers_of(run).items():
        last = max(nodes, key=lambda node: (node.attempt < 0, node.attempt))
        if name not in known and name != "root" and last.state in _FAILED:
            found.append((_end(nodes), FailedTask(name, last.state, _first_message(nodes), last_pod(nodes))))
    found = found or [
        (_end([node]), FailedTask(node.name, node.state, _first_message([node]))) for node in _failed_groups(run, groups)
    ]
    found.sort(key=lambda each: each[0])
    return _with_the_only_pod(run, [task for _, task in found])[:_MOST]


def failure_message(run: Obj) -> str:
    """Return what the server says of the run as a whole, or an empty text."""
    was_stopped = any(entry.get("state") == "CANCELING" for entry in run.get("state_history") or [])
    return _message(run) or ("it was terminated" if was_stopped else "")


def _failed_groups(run: Obj, groups: frozenset[str]) -> list[Node]:
    failed = {node.name: node for node in groups_of(run, groups) if node.state in _FAILED}
    return list(failed.values())


def _with_the_only_pod(run: Obj, failed: list[FailedTask]) -> list[FailedTask]:
    """Give the only task that failed the only pod that failed, where the server links none of them."""
    executors = [node for node in executors_of(run) if node.state in _FAILED]
    if len(failed) == 1 and not failed[0].pod and executors and len({node.pod for node in executors if node.attempt >= 0}) <= 1:
        only = failed[0]
        return [FailedTask(only.name, only.state, only.message or _first_message(executors), last_pod(executors))]
    return failed


def _end(nodes: Iterable[Node]) -> str:
    """Return when the last attempt ended; groups end later than what is in them."""
    return max((time_of(node.entry, "end_time") or "9" for node in nodes), default="9")


def _first_message(nodes: Iterable[Node]) -> str:
    return next(filter(None, (_message(node.entry) for node in nodes)), "")


def _message(obj: Obj) -> str:
    """Return the error of a run or a task, or of the last of its states that has one."""
    for holder in (obj, *reversed(obj.get("state_history") or [])):
        error = holder.get("error")
        if isinstance(error, dict) and error.get("message"):
            return without_credentials(str(error["message"])[:_MAX_MESSAGE])
    return ""
