"""Completes what a server lists as the tasks of a run with the pods of its steps. Pure.

Servers of version 2.17 name neither the pod of a task nor the task of a pod: what they give as `pod_name` of child tasks are ids of
Argo's nodes. The pods have both: an annotation has the path of their node, with the attempts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.jobs.state.waiters import POD_NODE_ANNOTATION
from trainwright.pipeline_runs.runs import FINAL_STATES, state_of
from trainwright.text.foreign_texts import one_line

_MAIN, _EXECUTOR, _DRIVER = "main", "executor", "-driver"
_ATTEMPT = re.compile(r"\((\d+)\)$")
_STATES = {"Succeeded": "SUCCEEDED", "Failed": "FAILED", "Running": "RUNNING"}


def lacks_pods(run: Obj) -> bool:
    """Whether a server lists executors or drivers, and the pod of none of them."""
    nodes = [entry for entry in _entries(run) if _base(entry) == _EXECUTOR or _base(entry).endswith(_DRIVER)]
    return bool(nodes) and not any(entry.get("pod_name") for entry in nodes)


def with_pods(run: Obj, pods: Iterable[Obj]) -> Obj:
    """Return a run whose tasks with pods are those that the pods tell, and its other tasks, such as cached ones, as listed.

    A task that is the only one of its name keeps the state that the server gives it: of an attempt that failed, the pod does not say
    whether another one follows.
    """
    placed = [place for place in map(_placed, pods) if place is not None]
    executors: dict[str, list[_Placed]] = {}
    for place in sorted(placed, key=lambda place: place.attempts):
        if place.node == _EXECUTOR:
            executors.setdefault(place.group, []).append(place)
    counts = Counter(group.rpartition(".")[2] for group in executors)
    drivers = [place for place in placed if place.node.endswith(_DRIVER)]
    workflows = {place.group.partition(".")[0] for place in placed}
    known = {_EXECUTOR, *counts, *(place.node for place in drivers), *workflows}
    found = [entry for entry in _entries(run) if _base(entry) not in known]
    for group, attempts in executors.items():
        name = group.rpartition(".")[2]
        listed = _listed_state(run, name) if counts[name] == 1 else ""
        found.append({**attempts[-1].entry(name), "task_id": group, "state": _state(attempts[-1], listed, state_of(run))})
        found += [{**attempt.entry(f"{_EXECUTOR}({number})"), "parent_task_id": group} for number, attempt in enumerate(attempts)]
    found += [driver.entry(f"{driver.node}({driver.attempts[-1]})") for driver in drivers]
    return {**run, "run_details": {**(run.get("run_details") or {}), "task_details": found}}


@dataclass(frozen=True)
class _Placed:
    """A pod with its node: the path of the group that the node is in, its name, and the attempts of all nodes of the path."""

    group: str
    node: str
    attempts: tuple[int, ...]
    pod: Obj

    @property
    def state(self) -> str:
        return _STATES.get(str(self._status.get("phase")), "PENDING")

    @property
    def _status(self) -> Obj:
        status: Obj = self.pod.get("status") or {}
        return status

    def entry(self, name: str) -> Obj:
        """Return the node as a server with links lists it."""
        containers = self._status.get("containerStatuses") or []
        main = next((each.get("state") or {} for each in containers if each.get("name") == _MAIN), {})
        ended: Obj = main.get("terminated") or {}
        entry = {
            "display_name": name,
            "pod_name": name_of(self.pod),
            "state": self.state,
            "start_time": self._status.get("startTime") or self.pod["metadata"].get("creationTimestamp") or "",
            "end_time": ended.get("finishedAt") or "",
        }
        message = self._message(ended) if self.state == "FAILED" else ""
        return {**entry, "error": {"message": message}} if message else entry

    def _message(self, ended: Obj) -> str:
        """Return why the pod failed: what its program left, else the reason of Kubernetes, else the exit code."""
        reason = ended.get("reason") if ended.get("reason") not in ("Error", "Completed") else ""
        told = ended.get("message") or self._status.get("message") or reason or self._status.get("reason")
        return one_line(told or (f"exited {ended['exitCode']}" if ended.get("exitCode") else ""))


def _placed(pod: Obj) -> _Placed | None:
    """Return the place of a pod; None for one of no node."""
    *above, last = annotations_of(pod).get(POD_NODE_ANNOTATION, "").split(".")
    if not above or not last:
        return None
    numbers = (_ATTEMPT.search(part) for part in (*above, last))
    attempts = tuple(int(number[1]) if number else 0 for number in numbers)
    return _Placed(".".join(_ATTEMPT.sub("", part) for part in above), _ATTEMPT.sub("", last), attempts, pod)


def _state(last: _Placed, listed: str, of_run: str) -> str:
    """Return the state of a task from its last attempt, and from the server where it lists the task by a name of one task only."""
    if listed in FINAL_STATES:
        return listed
    is_tried_again = last.state == "FAILED" and listed and of_run not in FINAL_STATES
    return listed if is_tried_again else last.state


def _listed_state(run: Obj, name: str) -> str:
    """Return the state of the node of all attempts, or of the only one; empty if there are several, as in a loop."""
    names = (name, f"{name}(0)")
    found = [[entry for entry in _entries(run) if entry.get("display_name") == each] for each in names]
    entries = next((each for each in found if each), [])
    return state_of(entries[0]) if len(entries) == 1 else ""


def _base(entry: Obj) -> str:
    return _ATTEMPT.sub("", one_line(entry.get("display_name") or ""))


def _entries(run: Obj) -> list[Obj]:
    return [entry for entry in (run.get("run_details") or {}).get("task_details") or [] if isinstance(entry, dict)]
