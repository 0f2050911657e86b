"""Runs the graph of a compiled pipeline on this machine: which task starts when, with which values, and where its outputs go.

Tasks that do not wait for each other run side by side. As in the workflow of a server, no task starts after a failure, but for
those that run after every end: exit handlers, and tasks that ignore the failure of others. A process of this machine mounts
nothing, and `/workspace` of the machine is another folder than that of the claim, if there is one: instead of the mount path, a
step gets the folder of the claim.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.local_inputs import GROUP, Scope, State, TaskInputs, collected, upstream_of, with_defaults
from trainwright.pipeline_runs.local_step import executor_input, imported, outputs_of, run_step
from trainwright.pipeline_runs.local_values import BadValue, Values, not_carried
from trainwright.text.foreign_texts import one_line

_AFTER_EVERY_END = "ALL_UPSTREAM_TASKS_COMPLETED"
_GRACE_SECONDS = 3.0
"""After an interrupt: a training's step suspends its job in less than one, and then waits for the pods, which nobody needs."""
_PATH, _TRAINING = "workspace_path", "TASK_CONFIG"
_FILE = "file://"


class Observer(Protocol):
    """Takes what happens, from several threads. Tasks are named by their place: `for-loop-2[1]/fit`."""

    def begins(self, task: str) -> None:
        """A task's program starts, for the first time."""

    def prints(self, task: str, line: str) -> None:
        """A task's program has printed a line."""

    def ends(self, task: str, state: State, outputs: Values, problem: str) -> None:
        """A task has ended; `problem` says what is wrong with its values or outputs, if its program did not fail."""

    def warns(self, text: str) -> None:
        """Something will be different on a server."""


@dataclass(frozen=True)
class Graph:
    """A pipeline that is run: its specification, where its artifacts go, its observer, and whether it is interrupted."""

    spec: Obj
    folder: Path
    observer: Observer
    interrupted: threading.Event = field(default_factory=threading.Event)
    """No task starts any more, but for those that run after every end."""
    side_by_side: int = max(2, os.cpu_count() or 2)
    """Programs that run at once."""
    mounts: Mapping[str, Sequence[Obj]] = field(default_factory=dict)
    """Claims that executors mount, by the label of the executor."""
    claim_folder: Callable[[str], str] = lambda _claim: ""
    """Returns the folder of a claim on this machine; empty without one."""

    @classmethod
    def below(cls, root: Path, spec: Obj, observer: Observer) -> Graph:
        """Return the run that begins now. Its artifacts go to the folder NAME-TIME of `root`, by which its steps know who they are."""
        started = datetime.now(UTC).strftime("%Y-%m-%d-%H-%M-%S-%f")
        return cls(spec, root / f"{spec['pipelineInfo']['name']}-{started}", observer)


def run_graph(graph: Graph, values: Values) -> tuple[bool, Values]:
    """Run a pipeline with values of its parameters to its end. Returns whether it succeeded, and its outputs.

    An exception such as KeyboardInterrupt in the calling thread ends the programs with SIGTERM, and after 3 s with SIGKILL; then it is
    raised.
    """
    return _Run(graph).all(values)


class _Run:
    def __init__(self, graph: Graph):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._graph, self._observer = graph, graph.observer
        self._components: dict[str, Obj] = graph.spec.get("components", {})
        self._executors: dict[str, Obj] = graph.spec["deploymentSpec"].get("executors", {})
        self._places = threading.BoundedSemaphore(graph.side_by_side)
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._warned: set[str] = set()
        self._of_run = {
            "{{$.pipeline_job_name}}": graph.folder.name,
            "{{$.pipeline_job_resource_name}}": graph.folder.name,
            "{{$.pipeline_job_uuid}}": str(uuid.uuid4()),
            "{{$.pipeline_job_create_time_utc}}": now,
            "{{$.pipeline_job_schedule_time_utc}}": now,
            "{{$.pipeline_root}}": str(graph.folder.parent),
        }

    def all(self, values: Values) -> tuple[bool, Values]:
        root = self._graph.spec["root"]
        scope = Scope(root, with_defaults(root, values), (), threading.Event())
        succeeded = self._group(scope)
        return succeeded, scope.own_outputs() if succeeded else {}

    def _group(self, scope: Scope) -> bool:
        """Run the tasks of a group, each as soon as those are ended that it waits for. Returns whether none has failed."""
        tasks: dict[str, Obj] = scope.component["dag"]["tasks"]
        waiting = {name: upstream_of(name, scope.component, self._components) for name in tasks}
        running: dict[Future[tuple[State, Values]], str] = {}
        with self._pool(len(waiting)) as pool:
            while waiting or running:
                ready = [name for name, upstream in waiting.items() if upstream <= scope.states.keys()]
                for name in ready:
                    if self._may_start(tasks[name], {scope.states[each] for each in waiting.pop(name)}, scope):
                        running[pool.submit(self._task, name, tasks[name], scope)] = name
                    else:
                        scope.states[name] = State.omitted
                if running:
                    for ended in wait(running, return_when=FIRST_COMPLETED).done:
                        name = running.pop(ended)
                        scope.states[name], scope.outputs[name] = ended.result()
                elif not ready:  # no task runs that could make another one ready
                    break
        for name in waiting:  # kfp's compiler refuses this, but anyone may write the compiled form
            scope.states[name] = State.omitted
            problem = "it waits for itself, or for a task that does not exist"
            self._observer.ends("/".join((*scope.place, name)), State.failed, {}, problem)
        return not {State.failed, State.omitted} & set(scope.states.values())

    @contextlib.contextmanager
    def _pool(self, threads: int) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(max_workers=max(threads, 1)) as pool:
            try:
                yield pool
            except BaseException:
                # The end of the pool waits for its threads, and these for their programs.
                self._graph.interrupted.set()
                for process in list(self._processes):
                    process.terminate()
                deadline = time.monotonic() + _GRACE_SECONDS
                for process in list(self._processes):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(deadline - time.monotonic(), 0))
                    process.kill()
                raise

    def _may_start(self, task: Obj, upstream: set[State], scope: Scope) -> bool:
        if _runs_after_every_end(task):
            return True
        return not (upstream & {State.failed, State.omitted} or scope.halted.is_set() or self._graph.interrupted.is_set())

    def _task(self, name: str, task: Obj, scope: Scope) -> tuple[State, Values]:
        component, label = self._components[task["componentRef"]["name"]], "/".join((*scope.place, name))
        looked_up = TaskInputs(task, component, scope, label, self._of_run, self._warn)
        # What runs after every end does so after a failure, too, and so does everything in it.
        halted = threading.Event() if _runs_after_every_end(task) else scope.halted
        try:
            condition = task.get("triggerPolicy", {}).get("condition")
            # unlike after a failure, what follows a skipped task runs
            if condition and not looked_up.condition_holds(condition):
                return State.skipped, {}
            if "dag" in component:
                return self._nested(name, looked_up, halted)
            executor = self._executors[component["executorLabel"]]
            if "container" in executor:
                state, outputs = self._step(looked_up, executor["container"], halted)
            else:
                self._observer.begins(label)
                state, outputs = State.succeeded, imported(executor["importer"], looked_up.values())
                self._observer.ends(label, state, outputs, "")
        except (ValueError, LookupError, TypeError, OSError) as error:
            # Whatever is wrong with one task, such as a full disk, the exit handlers run.
            problem = str(error) if isinstance(error, BadValue) else f"{type(error).__name__}: {error}"
            self._observer.ends(label, State.failed, {}, problem)
            state, outputs = State.failed, {}
        if state is State.failed:
            halted.set()
            scope.halted.set()
        return state, outputs

    def _nested(self, name: str, looked_up: TaskInputs, halted: threading.Event) -> tuple[State, Values]:
        """Run a group or a nested pipeline, as often as its loop says."""
        task, component, scope = looked_up.task, looked_up.component, looked_up.scope
        if "retryPolicy" in task:
            self._warn(
                f"{looked_up.label}: set_retry of a nested pipeline has no effect in a run on this machine; set it on its tasks"
            )
        is_group = GROUP.fullmatch(name) is not None
        inputs = with_defaults(component, looked_up.values())
        enclosing = scope if is_group else None
        iterator = task.get("parameterIterator") or task.get("artifactIterator")
        if iterator is None:
            inner = Scope(component, inputs, scope.place if is_group else (*scope.place, name), halted, enclosing)
            return (State.succeeded, inner.own_outputs()) if self._group(inner) else (State.failed, {})
        iterations = [
            Scope(component, {**inputs, iterator["itemInput"]: item}, (*scope.place, f"{name}[{at}]"), halted, enclosing)
            for at, item in enumerate(looked_up.items(iterator, inputs))
        ]
        # More iterations than programs would only wait for a place.
        limit = int(task.get("iteratorPolicy", {}).get("parallelismLimit") or self._graph.side_by_side)
        with self._pool(min(limit, self._graph.side_by_side)) as pool:
            if not all(list(pool.map(self._iteration, iterations))):
                return State.failed, {}
        return State.succeeded, collected(component, [each.own_outputs() for each in iterations], self._components)

    def _iteration(self, scope: Scope) -> bool:
        # One that is still queued when another fails is not begun.
        return not (scope.halted.is_set() or self._graph.interrupted.is_set()) and self._group(scope)

    def _step(self, looked_up: TaskInputs, container: Obj, halted: threading.Event) -> tuple[State, Values]:
        """Run the program of a task, again after a failure if the task says so."""
        component, label = looked_up.component, looked_up.label
        folder = self._graph.folder.joinpath(*re.sub(r"\[(\d+)\]", r"-iteration-\1", label).split("/"))
        inputs = looked_up.values()
        if mounts := self._graph.mounts.get(component["executorLabel"]):
            inputs = use_claims(component, inputs, mounts, looked_up.name_of, self._graph.claim_folder)
        given = executor_input(component, inputs, folder)
        environment = {
            one["name"]: looked_up.filled(one.get("value", ""), f"{label}: {one['name']}") for one in container.get("env", [])
        }
        retries = looked_up.task.get("retryPolicy", {})
        tries = max(int(retries.get("maxRetryCount", 0)), 0) + 1
        for attempt in range(tries):
            if attempt and self._graph.interrupted.wait(_pause_before(attempt, retries)):  # no further try after an interrupt
                break
            with self._places:
                # A failure, or an interrupt while it waited for its place, which stops only what does not run after every end.
                if halted.is_set() or (self._graph.interrupted.is_set() and halted is looked_up.scope.halted):
                    if attempt:  # it has run and failed: `omitted` would hide that
                        break
                    return State.omitted, {}
                if not attempt:
                    self._observer.begins(label)
                code = run_step(container, given, environment, lambda line: self._observer.prints(label, line), self._processes)
                if code and attempt + 1 == tries:
                    halted.set()  # before the next one takes the place
            if code == 0:
                outputs = outputs_of(component, given)
                for name in component.get("outputDefinitions", {}).get("parameters", {}).keys() & outputs.keys():
                    if problem := not_carried(outputs[name]):
                        self._warn(f"{label}: the output {name!r} has {problem}")
                self._observer.ends(label, State.succeeded, outputs, "")
                return State.succeeded, outputs
            if attempt + 1 < tries:
                self._observer.prints(label, f"try {attempt + 1} of {tries} ended with exit code {code}")
        # A process that is killed from outside prints no reason.
        self._observer.ends(label, State.failed, {}, f"its process was ended by signal {-code}" if code < 0 else "")
        return State.failed, {}

    def _warn(self, text: str) -> None:
        text = re.sub(r"\[\d+\]", "", text)  # once for all iterations
        if text not in self._warned:
            self._warned.add(text)
            self._observer.warns(text)


def _runs_after_every_end(task: Obj) -> bool:
    return bool(task.get("triggerPolicy", {}).get("strategy") == _AFTER_EVERY_END)


def _pause_before(attempt: int, retries: Mapping[str, Any]) -> float:
    """Return the seconds before a retry: `backoffDuration: 5s`, times `backoffFactor` for each further one."""
    first, most = (float(str(retries.get(key, "")).rstrip("s") or default) for key, default in _PAUSES)
    return min(first * float(retries.get("backoffFactor") or 2.0) ** (attempt - 1), most)


_PAUSES = (("backoffDuration", 0.0), ("backoffMaxDuration", 3600.0))
"""Fields of a retry policy in seconds, as `5s`, and their defaults."""


def claim_mounts(platform: Obj) -> dict[str, list[Obj]]:
    """Return the mounts of each executor, by the label of the executor. `platform` is the second document of a compiled pipeline."""
    executors = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    return {label: settings["pvcMount"] for label, settings in executors.items() if settings.get("pvcMount")}


def use_claims(
    component: Obj,
    inputs: Values,
    mounts: Sequence[Obj],
    name_of: Callable[[Obj], str],
    folder_of: Callable[[str], str],
) -> Values:
    """Return the inputs of a task with the folders of claims for paths below their mounts, also in defaults.

    Only components of this project are changed, which have an input `workspace_path`: other programs have the path in their code, and
    a warning names them. Of a training, only that input is of this machine; its other paths are those of its pods.

    Args:
        component: The task's component.
        inputs: Its inputs.
        mounts: What it mounts, as kfp.kubernetes writes it.
        name_of: Returns the name of a claim that a mount refers to.
        folder_of: Returns the folder of a claim on this machine, empty without one.

    Raises BadValue for a claim without a folder here.
    """
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    if _PATH not in declared:  # a program of others, with the path in its code
        return inputs
    is_training = any(about.get("parameterType") == _TRAINING for about in declared.values())
    names = [_PATH] if is_training else [name for name, about in declared.items() if about.get("parameterType") == "STRING"]
    found = dict(inputs)
    for mount in mounts:
        for name in names:
            value = found.get(name, declared[name].get("defaultValue"))
            below = _below(value, mount["mountPath"]) if isinstance(value, str) else None
            if below is not None:
                scheme = _FILE if str(value).startswith(_FILE) else ""
                found[name] = scheme + str(_folder(mount, name_of, folder_of) / below)
    return found


def _below(value: str, mount_path: str) -> PurePosixPath | None:
    path = PurePosixPath(value.removeprefix(_FILE))
    return path.relative_to(mount_path) if path.is_relative_to(mount_path) else None


def _folder(mount: Mapping[str, Obj], name_of: Callable[[Obj], str], folder_of: Callable[[str], str]) -> Path:
    claim, sub_path = name_of(mount["pvcNameParameter"]), PurePosixPath(str(mount.get("subPath") or ""))
    if not (folder := folder_of(claim)):
        raise BadValue(
            f"mount_pvc: the claim {one_line(claim)!r} has no folder on this machine: it does not exist, or the cluster is not an "
            f"embedded one of this machine; set {_PATH} to a folder, or create the claim (`start_run` does)"
        )
    if sub_path.is_absolute() or ".." in sub_path.parts:
        raise BadValue(f"mount_pvc: sub_path {one_line(str(sub_path))!r} leads out of the claim")
    below = Path(folder, sub_path)
    below.mkdir(parents=True, exist_ok=True)  # as a kubelet does
    return below
