"""A stand-in for the part of Kubeflow Pipelines that runs the steps of a pipeline: pods, retries, termination, the exit handler.

Facts about a real one are in the references `real-cluster.md`, section 3, and `kfp.md`. There is no driver, no cache and no artifact
store. The workflow of a run ends only with a `WorkflowController`.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from step_pod import GRACE_SECONDS, StepPod, Workflow
from step_program import EXECUTOR_OUTPUT, StepProgram, step_program
from support.argo_workflows import create_workflow
from support.on_first_use import OnFirstUse
from workflow_controller import QUIET, Pace, WorkflowController
from workflow_nodes import workflow_nodes

from trainwright.api.errors import NotFound
from trainwright.api.objects import name_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge
from trainwright.jobs.state.waiters import WORKFLOW

shipped = OnFirstUse("trainwright.components")

RETRIES = 2
"""Of `templateDefaults` in the ConfigMap of Argo as it is installed."""
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class RetryStrategy:
    """When a step is tried again, and how often: `OnError` if its pod was lost, `OnFailure` if its program failed."""

    limit: int
    policy: str

    @classmethod
    def merged(cls, set_retry: int, has_template_defaults: bool) -> RetryStrategy:
        """Return the strategy of a task: kfp compiles `set_retry` without a policy, so that of `templateDefaults` stays in force."""
        if has_template_defaults:
            return cls(set_retry or RETRIES, "OnError")
        return cls(set_retry, "OnFailure")

    def retries(self, pod: StepPod, code: int) -> bool:
        """Whether another try follows a pod that has ended with this code."""
        if pod.is_lost:
            return self.policy == "OnError"
        return bool(code) and not pod.reason and self.policy == "OnFailure"


@dataclass(frozen=True)
class StepEnd:
    """How a step has ended: `message` is that of its last container, `outputs` are there only after a success."""

    succeeded: bool
    exit_code: int
    message: str
    log: str
    outputs: dict[str, Any] = field(default_factory=dict)


class Backend:
    """Runs pipelines whose steps reach the cluster with `kubeconfig`. `close` ends what still runs."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, folder: Path):
        self.cluster, self.kubeconfig, self.folder = cluster, kubeconfig, folder
        self._runs: list[PipelineRun] = []

    def run(self, *, kubeconfig: Path | None = None) -> PipelineRun:
        """A new run of a pipeline."""
        run = PipelineRun(self.cluster, self.folder, {"KUBECONFIG": str(kubeconfig or self.kubeconfig)})
        self._runs.append(run)
        return run

    def close(self) -> None:
        for run in self._runs:
            run.close()


class PipelineRun:
    """A run, and its workflow. Several steps may run at once."""

    def __init__(self, cluster: Cluster, folder: Path, environ: Mapping[str, str]):
        self.id = str(uuid.uuid4())
        self.cluster = cluster
        self.workflow_object = create_workflow(cluster, f"pipeline-{self.id[:5]}", run=self.id)
        self.workflow = Workflow(self.id, name_of(self.workflow_object), uid_of(self.workflow_object))
        self._environ, self._controller = environ, None
        self._folder = folder / self.workflow.name
        self._folder.mkdir(parents=True)
        self.steps: list[RunningStep] = []
        self.has_template_defaults = True
        """Whether the ConfigMap of Argo gives every template a retry strategy, as it does since 2.17."""
        self.is_terminated = False
        self.has_error = False
        """Whether the API server has refused its workflow."""
        self.has_deadline = False
        """Whether its workflow has `activeDeadlineSeconds: 0`, of a termination."""
        self.lock = threading.Lock()
        """A run that is terminated starts no further try."""

    def start(
        self,
        component: Any,
        arguments: dict[str, Any],
        *,
        set_retry: int = 0,
        place: str = "",
    ) -> RunningStep:
        """Start a step, at another `place` in the pipeline than at its top; returns when its first process runs.

        `set_retry` is what the pipeline sets on the task.
        """
        program = replace(step_program(component, arguments, self._outputs()), place=place)
        return self._start(program, set_retry)

    def start_command(self, command: tuple[str, ...], *, set_retry: int = 0) -> RunningStep:
        """As `start`, for a step that is no component."""
        return self._start(StepProgram("command", command, self._outputs()), set_retry)

    def follow(self, pace: Pace = QUIET, *, has_handler: bool = False) -> WorkflowController:
        """Let the workflow end when its steps have ended."""
        self._controller = WorkflowController(self, pace, has_handler=has_handler)
        return self._controller

    def terminate(self, *, is_heard: bool = True) -> None:
        """Terminate the run, as its user does: running pods get a signal, nothing is tried again.

        `is_heard` False: their containers end at once, as those of a busy cluster do before their programs have acted.
        """
        with self.lock:
            self.is_terminated = self.has_deadline = True
            for step in self.steps:
                if is_heard:
                    step.pod.terminate()
                else:
                    step.pod.kill()

    def delete(self) -> None:
        """Delete the run, as its user does: the garbage collector follows, and containers end before their programs have acted."""
        with self.lock:
            self.is_terminated = True
            self.cluster.delete(WORKFLOW, self.workflow.name, self.workflow.namespace)
            for step in self.steps:
                step.pod.was_deleted = True
                step.pod.kill()

    def finish(self, state: str, **arguments: Any) -> StepEnd:
        """Run the exit handler. `state`: RUNNING after a termination, FAILED after a failure, else SUCCEEDED."""
        self.is_terminated = False  # exit handlers run after a termination, too
        error = {"error": {"message": "a step has failed", "code": 9}} if state == "FAILED" else {"error": {}}
        status = {"state": state, "pipelineJobResourceName": self.id, "pipelineTaskName": "exit-handler-1", **error}
        return self.start(shipped.clean_up, {"status": status, **arguments}).wait()

    def processes(self) -> list[int]:
        """What is left of the processes of all its steps."""
        return [process for step in self.steps for pod in step.pods for process in pod.processes()]

    def close(self) -> None:
        self.is_terminated = True
        for step in self.steps:
            step.close()
        if self._controller is not None:
            self._controller.close()

    @property
    def next_executor_output(self) -> Path:
        """Where the executor of the next step writes its outputs."""
        return self._outputs() / EXECUTOR_OUTPUT

    def _outputs(self) -> Path:
        return self._folder / f"step-{len(self.steps)}" / "outputs"

    def _start(self, program: StepProgram, set_retry: int) -> RunningStep:
        assert not self.has_error, "the workflow has ended: Argo starts no more steps"

        def next_pod(number: int) -> StepPod:
            node = self.workflow.node_name(program.place or program.name, number, self.has_template_defaults)
            self._add_nodes(node, program)
            return StepPod(self.cluster, self.workflow, program, node, program.folder.parent, self._environ)

        program.folder.parent.mkdir(parents=True)
        step = RunningStep(self, next_pod, RetryStrategy.merged(set_retry, self.has_template_defaults))
        self.steps.append(step)
        return step

    def _add_nodes(self, name: str, program: StepProgram) -> None:
        """Add the nodes of a try to the workflow. If it is too large then, it ends with an error, and the pod starts all the same."""
        nodes = workflow_nodes(name, program, is_wrapped=self.has_template_defaults)
        try:
            self.cluster.patch(WORKFLOW, self.workflow.name, {"status": {"nodes": nodes}}, self.workflow.namespace)
        except NotFound:  # the run is deleted
            return
        except TooLarge:
            self.has_error = True


class RunningStep:
    """A step, which is tried again as its strategy says, with the same executor input. `pods` are its tries."""

    def __init__(self, run: PipelineRun, next_pod: Callable[[int], StepPod], strategy: RetryStrategy):
        self._run, self._next_pod, self._strategy = run, next_pod, strategy
        self.run_id = run.id
        self.pods: list[StepPod] = [next_pod(0)]
        self._end: StepEnd | None = None
        self._thread = threading.Thread(target=self._follow, name=f"step-{self.pod.name}", daemon=True)
        self._thread.start()

    @property
    def pod(self) -> StepPod:
        """The pod of the last try."""
        return self.pods[-1]

    @property
    def has_ended(self) -> bool:
        """Whether the step has ended and is not tried again."""
        return self._end is not None

    def delete_pod(self, *, end_is_seen_first: bool = False) -> None:
        """Delete the pod, as a drained node does. `end_is_seen_first`: Argo sees the end of its container before the deletion."""
        self.pod.delete(end_is_seen_first=end_is_seen_first)

    def time_out(self) -> None:
        """Let the step reach the deadline that was set on its task."""
        self.pod.time_out()

    def kill_program(self) -> None:
        """Kill the step's program, as when its memory is exhausted."""
        self.pod.kill_program()

    def wait(self, seconds: float = _WAIT_SECONDS + GRACE_SECONDS) -> StepEnd:
        """Wait until the step has ended and is not tried again."""
        self._thread.join(seconds)
        assert self._end is not None, f"the step still runs after {seconds} s:\n{self.log()}"
        return self._end

    def log(self) -> str:
        """What all tries have written while their launcher read it."""
        return "".join(pod.log.read_text("utf-8", errors="replace") for pod in self.pods)

    def close(self) -> None:
        self.pod.kill()
        self._thread.join(_WAIT_SECONDS)

    def _follow(self) -> None:
        while True:
            pod = self.pod
            code = pod.wait()
            with self._run.lock:
                is_last = len(self.pods) > self._strategy.limit
                if self._run.is_terminated or is_last or not self._strategy.retries(pod, code):
                    break
                self.pods.append(self._next_pod(len(self.pods)))
        succeeded = code == 0 and not pod.was_deleted and not pod.reason
        outputs = json.loads(pod.published.read_bytes()) if succeeded and pod.published.exists() else {}
        self._end = StepEnd(succeeded, code, pod.message, self.log(), outputs.get("parameterValues") or {})
