"""The tasks of a run as a server of version 2.17 lists them: the nodes of a workflow of Argo 4.

With `templateDefaults` every node is tried again: there is one for all attempts, and one for each, named `train(0)`. Links go from a
node to what follows it, so that the next task is linked to the executor of the one before. Only executors and drivers have pods, but
every node has the name that its pod would have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


@dataclass
class NodeTree:
    """The nodes of a workflow; `pods` has the pods of executors and drivers by their names, `train/executor(0)`."""

    workflow: str = "tiny-x1y2z"
    has_template_defaults: bool = True

    def __post_init__(self) -> None:
        self.nodes: list[Obj] = []
        self.pods: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._last = self._attempts(self.workflow, [])
        driver = self._attempts("root-driver", self._last)
        self._last = self._attempts("root", driver)

    def group(self, name: str, states: Sequence[str] = ("RUNNING",)) -> None:
        """Add a condition, a loop or another group, in which further tasks are."""
        driver = self._attempts(f"{name}-driver", self._last)
        self._last = self._attempts(name, driver, states)

    def task(self, name: str, states: Sequence[str] = ("SUCCEEDED",), *, driver: str = "SUCCEEDED") -> None:
        """Add a task with a state for each attempt of its executor. It follows what was added before it."""
        drivers = self._attempts(f"{name}-driver", self._last, (driver,))
        self._keep_pods(name, drivers)
        if driver == "FAILED":
            return
        around = self._attempts(name, drivers, (states[-1],))
        executors = self._attempts("executor", around, states)
        self._keep_pods(name, executors)
        self._last = executors

    @property
    def details(self) -> list[Obj]:
        return [{key: value for key, value in node.items() if value} for node in self.nodes]

    def _attempts(self, name: str, after: list[Obj], states: Sequence[str] = ("SUCCEEDED",)) -> list[Obj]:
        """Add the node of all attempts and each attempt; returns those that something may follow."""
        if not self.has_template_defaults and len(states) == 1:
            return list(self._add(name, after, states))
        above = list(self._add(name, after, states[-1:]))
        return list(self._add_attempts(name, above, states))

    def _add_attempts(self, name: str, above: list[Obj], states: Sequence[str]) -> Iterator[Obj]:
        for number, state in enumerate(states):
            yield from self._add(f"{name}({number})", above, [state])

    def _add(self, name: str, after: list[Obj], states: Sequence[str]) -> Iterator[Obj]:
        number = next(self._numbers)
        pod = f"{self.workflow}-{number:04}"
        node: Obj = {
            "display_name": name,
            "task_id": f"id-{number}",
            "pod_name": pod,
            "state": states[0],
            "start_time": f"2026-11-25T10:{number // 60:02}:{number % 60:02}Z",
            "end_time": f"2026-11-25T11:{number // 60:02}:{number % 60:02}Z" if states[0] != "RUNNING" else "",
            "child_tasks": [],
        }
        for each in after[-1:]:
            each["child_tasks"].append({"pod_name": pod})
        self.nodes.append(node)
        yield node

    def _keep_pods(self, task: str, nodes: list[Obj]) -> None:
        for node in nodes:
            self.pods[f"{task}/{node['display_name']}"] = node["pod_name"]
