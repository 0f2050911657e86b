"""Reads what a server lists as the tasks of a run, the nodes of its workflow, and finds the tasks that have failed. Pure.

A task has a driver, which prepares it, and an executor, whose pod does its work. With a retry strategy, which Argo gives to every node
by default, each attempt is a node of its own besides, such as `train(0)`. Links say which node follows which; they do not say which
group of tasks a node is in. The compiled pipeline says which names are groups. Servers up to 2.17 list these nodes without the
messages of their failures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.runs import state_of
from trainwright.text.foreign_texts import one_line, without_credentials

_EXECUTOR, _DRIVER, _ROOT = "executor", "-driver", "root"
_ON_EXIT = ".onExit"
"""Ends the name of the node around what runs at the exit of a group."""
_FAILED = ("FAILED", "ERROR", "CANCELED")
_MOST = 50
_MAX_MESSAGE = 1000
_ATTEMPT = re.compile(r"\((\d+)\)$")
_ITERATION = re.compile(r"iteration-(item|iterations\(\d+:\d+\))")
_GROUP = re.compile(r"(condition|condition-branches|exit-handler|for-loop)-\d+")
"""Names that kfp's compiler gives to groups."""


@dataclass(frozen=True)
class Node:
    """A node; `name` is without the attempt, which is -1 for the node of all attempts."""

    name: str
    attempt: int
    key: str
    entry: Obj

    @property
    def state(self) -> str:
        return state_of(self.entry)

    @property
    def pod(self) -> str:
        return one_line(self.entry.get("pod_name") or "")

    @property
    def main_pod(self) -> str:
        """The pod of a task, as servers say it that list no nodes."""
        detail = self.entry.get("executor_detail") or {}
        return one_line(detail.get("main_job") or next(reversed(detail.get("failed_main_jobs") or []), "") or "")


@dataclass
class Task:
    """A task with its nodes; `executors` are the attempts of its pod, `drivers` those of its driver."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    executors: list[Node] = field(default_factory=list)
    drivers: list[Node] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The state of all attempts together, if there is such a node, else of the last."""
        return max(self.nodes, key=lambda node: (node.attempt < 0, node.attempt)).state

    @property
    def pod(self) -> str:
        """The pod of the last attempt."""
        return _last_pod(self.executors)


def tasks_of(run: Obj, groups: frozenset[str] = frozenset()) -> list[Task]:
    """Return the tasks of a run in the order in which they started: no groups, drivers and executors, and not the workflow itself.

    `groups` are the names of nested pipelines, conditions, loops and exit handlers. Of several tasks of one name, as in a loop, the
    names have numbers.
    """
    nodes = _nodes(run)
    shown = [node for node in nodes if not _is_hidden(node, nodes, run, groups)]
    parents = _parents(nodes)
    tasks = _tasks_by_node(shown, parents)
    for node in nodes:
        if node.name == _EXECUTOR and (owner := _owner(node, parents, tasks)) is not None:
            owner.executors.append(node)
    found = list({id(task): task for task in tasks.values()}.values())
    counts, numbers = Counter(task.name for task in found), Counter[str]()
    for task in found:
        name = task.name
        numbers[name] += 1
        if counts[name] == 1:
            task.drivers += [node for node in nodes if node.name == name + _DRIVER]
        else:
            task.name = f"{name} #{numbers[name]}"
    return found


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
            pod = task.pod or _last_pod(drivers) or next(filter(None, (node.main_pod for node in task.nodes)), "")
            found.append((_end(nodes), FailedTask(task.name, state, _first_message(nodes), pod)))
    known = {task.name for task in tasks}
    drivers_by_owner: dict[str, list[Node]] = {}
    for node in _nodes(run):
        if node.name.endswith(_DRIVER):
            drivers_by_owner.setdefault(node.name.removesuffix(_DRIVER), []).append(node)
    for name, nodes in drivers_by_owner.items():
        last = max(nodes, key=lambda node: (node.attempt < 0, node.attempt))
        if name not in known and name != _ROOT and last.state in _FAILED:
            found.append((_end(nodes), FailedTask(name, last.state, _first_message(nodes), _last_pod(nodes))))
    if not found:
        failed = {
            node.name: node
            for node in _nodes(run)
            if node.state in _FAILED and (node.name in groups or _GROUP.fullmatch(node.name))
        }
        found = [(_end([node]), FailedTask(node.name, node.state, _first_message([node]))) for node in failed.values()]
    found.sort(key=lambda each: each[0])
    return _with_the_only_pod(run, [task for _, task in found])[:_MOST]


def failure_message(run: Obj) -> str:
    """Return what the server says of the run as a whole, or an empty text."""
    was_stopped = any(entry.get("state") == "CANCELING" for entry in run.get("state_history") or [])
    return _message(run) or ("it was terminated" if was_stopped else "")


def _with_the_only_pod(run: Obj, failed: list[FailedTask]) -> list[FailedTask]:
    """Give the only task that failed the only pod that failed, where the server links none of them."""
    executors = [node for node in _nodes(run) if node.name == _EXECUTOR and node.state in _FAILED]
    if len(failed) == 1 and not failed[0].pod and executors and len({node.pod for node in executors if node.attempt >= 0}) <= 1:
        only = failed[0]
        return [FailedTask(only.name, only.state, only.message or _first_message(executors), _last_pod(executors))]
    return failed


def _last_pod(nodes: list[Node]) -> str:
    """Return the pod of the last attempt; the node of all attempts has none."""
    return max(nodes, key=lambda node: node.attempt).pod if nodes else ""


def _end(nodes: Iterable[Node]) -> str:
    """Return when the last attempt ended; groups end later than what is in them."""
    return max((_time_of(node.entry, "end_time") or "9" for node in nodes), default="9")


def _first_message(nodes: Iterable[Node]) -> str:
    return next(filter(None, (_message(node.entry) for node in nodes)), "")


def _message(obj: Obj) -> str:
    """Return the error of a run or a task, or of the last of its states that has one."""
    for holder in (obj, *reversed(obj.get("state_history") or [])):
        error = holder.get("error")
        if isinstance(error, dict) and error.get("message"):
            return without_credentials(str(error["message"])[:_MAX_MESSAGE])
    return ""


def _nodes(run: Obj) -> list[Node]:
    found = []
    for number, entry in enumerate((run.get("run_details") or {}).get("task_details") or []):
        name = one_line(entry.get("display_name") or "") if isinstance(entry, dict) else ""
        if name:
            attempt = _ATTEMPT.search(name)
            key = str(entry.get("pod_name") or entry.get("task_id") or number)
            found.append(Node(_ATTEMPT.sub("", name), int(attempt[1]) if attempt else -1, key, entry))
    return sorted(found, key=lambda node: _time_of(node.entry, "start_time") or _time_of(node.entry, "create_time"))


def _time_of(entry: Obj, key: str) -> str:
    """Return a time for comparisons: kfp's client has made those of the server `datetime`, pods have text. Empty without one."""
    return str(entry.get(key) or "").replace(" ", "T")


def _parents(nodes: list[Node]) -> dict[str, Node]:
    """Return the node that each node follows or belongs to, by the key of the latter, as far as there are links."""
    by_id = {str(node.entry["task_id"]): node for node in nodes if node.entry.get("task_id")}
    found = {
        node.key: by_id[str(node.entry.get("parent_task_id"))] for node in nodes if str(node.entry.get("parent_task_id")) in by_id
    }
    for node in nodes:
        for child in _children(node):
            known = by_id.get(str(child.get("task_id")))
            found[str(child.get("pod_name") or (known.key if known else ""))] = node
    return found


def _children(node: Node) -> Iterator[Obj]:
    return (child for child in node.entry.get("child_tasks") or [] if isinstance(child, dict))


def _is_hidden(node: Node, nodes: list[Node], run: Obj, groups: frozenset[str]) -> bool:
    name = node.name
    if name in (_EXECUTOR, _ROOT) or name.endswith((_DRIVER, _ON_EXIT)) or _ITERATION.fullmatch(name) or name in groups:
        return True
    return _GROUP.fullmatch(name) is not None or name in (run.get("display_name"), _workflow(nodes))


def _workflow(nodes: list[Node]) -> str:
    """Return the name of the workflow: the longest name with which all pods begin, and the ids of nodes that servers give as pods."""
    children = (str(child.get("pod_name") or "") for node in nodes for child in _children(node))
    pods = [pod for pod in (*(node.pod for node in nodes), *children) if pod]
    names = {node.name for node in nodes if pods and all(pod == node.name or pod.startswith(f"{node.name}-") for pod in pods)}
    return max(names, key=len, default="")


def _tasks_by_node(shown: list[Node], parents: dict[str, Node]) -> dict[str, Task]:
    """Return the task of each node, by the node's key. Attempts follow the node of all attempts of the same name."""
    single = Counter((node.name, node.attempt) for node in shown)
    tasks: dict[str, Task] = {}
    found: dict[str, Task] = {}
    for node in shown:
        above = parents.get(node.key)
        if max(single[node.name, attempt] for attempt in (-1, 0)) <= 1:
            key = f"name {node.name}"
        elif node.attempt >= 0 and above is not None and above.name == node.name:
            key = above.key
        else:
            key = node.key
        tasks[node.key] = found.setdefault(key, Task(node.name))
        tasks[node.key].nodes.append(node)
    return tasks


def _owner(executor: Node, parents: dict[str, Node], tasks: dict[str, Task]) -> Task | None:
    """Return the task of an executor: above it is its node of all attempts, if there is one, and above that the task."""
    node: Node | None = executor
    while node is not None and node.name == _EXECUTOR:
        node = parents.get(node.key)
    return tasks.get(node.key) if node is not None else None
