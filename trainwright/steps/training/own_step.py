"""Finds out who a step of Kubeflow Pipelines is: its place in the pipeline, which all its tries share and no other step has; which
ends its server tries again, and whether its run has an exit handler.

Nothing that a pipeline can pass to a step is that on every backend: placeholders are the same in all iterations of a loop, or new
in each try. So the step looks at its own pod, else at where its outputs go.

Argo merges the retry strategy of the server's `templateDefaults` (2.17: two tries, `OnError`) into that of every task, so that a
failure is not retried whatever `set_retry` says. Without these defaults only `set_retry` counts, which retries failures, but no
lost pods. A run may leave jobs training when it is terminated, if nothing on its cluster watches and no exit handler cleans up:
steps warn of it.
"""

from __future__ import annotations

import enum
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, annotations_of, labels_of, uid_of
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.identity import Identity, Submitter
from trainwright.jobs.state.waiters import POD_NODE_ANNOTATION, POD_RUN_LABEL, WORKFLOW, WaitingPod, Workflow
from trainwright.steps.ends.step_end import write_line
from trainwright.submission.jobs_client import JobsClient

log = logging.getLogger(__name__)
RUN, WORKFLOW_LABEL = POD_RUN_LABEL, "workflows.argoproj.io/workflow"
_TRY = re.compile(r"\(\d+\)")
_ITERATION = re.compile(r"\((\d+):\d+\)$")
_WITHOUT_MEANING = ("root", "iteration-item", "executor")
_GROUP = re.compile(r"(condition|condition-branches|exit-handler)-\d+")
"""What kfp makes of a condition or an exit handler: a task has a name of its own in spite of them."""
_LOCAL_RUN = re.compile(r"(?P<pipeline>.+)-\d{4}(-\d\d){5}-\d+")
_LOCAL_ITERATION = re.compile(r"(for-loop-\d+)-iteration-(\d+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WARNING = (
    "warning: no exit handler of this run cleans up: if the run is terminated, its TrainJob may train on; put the steps of the "
    "pipeline into `with trainwright_exit_handler():` (docs/cancellation.md)"
)
NO_GUARD = (
    "warning: nothing on this cluster ends the TrainJob if its step is killed: run a guard, as `trainwright rbac --guard` prints it "
    "(docs/cancellation.md)"
)
_CLEANS_UP = re.compile(r"trainwright\.components\.clean_up\b|trainwright[\s\",\\]+clean\b")
"""In the program or the command of the exit task: the component, or `trainwright clean`."""
_PARAMETER = re.compile(r"\{\{workflow\.parameters\.([^}]+)\}\}")


class ServerRetries(enum.StrEnum):
    """What the server tries again, as installed."""

    lost_pods = (
        "this server tries a step again only when its pod was lost, whatever set_retry says: set limits.job_retries to submit a "
        "failed job again from its checkpoint, or run the pipeline again with this run_id"
    )
    failures = (
        "this server tries a failed step again as often as set_retry says, and none whose pod was lost; each try submits the job "
        "again from its checkpoint, and so does limits.job_retries without a new try of the step"
    )
    unknown = ""


@dataclass(frozen=True)
class OwnStep:
    """`path` is the place in the pipeline, as `for-loop-2[0]/train`; empty if it is not known.

    `run_instance` is the run of the backend, or the local run.
    """

    path: str = ""
    pipeline: str = ""
    run_instance: str = ""
    workflow: Workflow | None = None
    waiting_pod: str = ""
    """The pod of this step, as its jobs note it; empty unless it is in the cluster of the jobs."""
    is_certain: bool = True
    """Whether no other step of the run takes itself for this one."""
    retries: ServerRetries = ServerRetries.unknown

    @property
    def is_place_of_node(self) -> bool:
        """Whether the place is that of Argo's node, and not what the addresses of the outputs tell."""
        return bool(self.path) and _UUID.fullmatch(self.path.rpartition("/")[2]) is None

    def identity(self, run_id: str, step: str, map_index: int = -1) -> Identity:
        """Return the identity of this step, which does the work of `step`, in the run."""
        place = [part for part in self.path.split("/") if part and not _GROUP.fullmatch(part)]
        own = Identity("kfp", run_id, self.path or step, map_index, submitter=self.submitter())
        return own.at("/".join(place)) if map_index < 0 else own  # trials have folders with their indices

    def submitter(self) -> Submitter:
        """Return what the step's jobs tell about it."""
        labels = {
            names.PIPELINE_LABEL: self.pipeline,
            names.PIPELINE_RUN_LABEL: self.run_instance,
            names.PIPELINE_TASK_LABEL: self.path,
        }
        return Submitter(
            self.run_instance, pipeline=self.pipeline, waiting_pod=self.waiting_pod, labels=labels, is_certain=self.is_certain
        )


def own_step(client: JobsClient, environ: Mapping[str, str] = os.environ, arguments: Sequence[str] = sys.argv) -> OwnStep:
    """Return who this step is.

    Its pod's annotation tells it; where the pod may not be read, or is in another cluster than `client`, the addresses of its outputs;
    and in a local run the folder of its outputs. Raises ApiError if the pod cannot be read for another reason: as somebody else the
    step would submit a second job.
    """
    outputs = _executor_input(arguments).get("outputs") or {}
    name = environ.get("KFP_POD_NAME", "")
    if not name:  # not in a pod of a server: a local run
        return _of_folder(str(outputs.get("outputFile") or ""))
    pod = _own_pod(client, name, environ.get("KFP_POD_UID", ""))
    if pod is None:  # without permission, or on another cluster: the addresses of outputs name run and task, too
        return _of_addresses(outputs.get("artifacts") or {})
    workflow = _workflow_of(pod, client.default_namespace)
    node = annotations_of(pod).get(POD_NODE_ANNOTATION, "")
    name = labels_of(pod).get(WORKFLOW_LABEL, "") or (workflow.name if workflow else "")
    pipeline = name.rpartition("-")[0] or name
    path = path_of_node(node, name) or _of_addresses(outputs.get("artifacts") or {}).path
    retries = server_retries(node, name)
    waiting = WaitingPod.of(pod, workflow.name, workflow.reference["uid"]) if workflow else WaitingPod.of(pod)
    run = labels_of(pod).get(RUN, "")
    return OwnStep(path, pipeline, run, workflow, waiting.as_text(), is_certain=bool(path), retries=retries)


def _executor_input(arguments: Sequence[str]) -> dict[str, Any]:
    """What the executor of kfp was told; empty outside of it."""
    for option, text in itertools.pairwise(arguments):
        if option == "--executor_input":
            try:
                told = json.loads(text)
            except ValueError:
                return {}
            return told if isinstance(told, dict) else {}
    return {}


def _of_folder(output_file: str) -> OwnStep:
    """Who a step of a local run is, with `kfp.local` as well: ROOT/PIPELINE-TIME/PATH/executor_output.json."""
    parts = PurePosixPath(output_file).parts[:-1]
    for index in range(len(parts) - 1, -1, -1):
        if (run := _LOCAL_RUN.fullmatch(parts[index])) is not None:
            path = "/".join(_LOCAL_ITERATION.sub(r"\1[\2]", part) for part in parts[index + 1 :])
            return OwnStep(path, run["pipeline"], parts[index])
    return OwnStep()


def _own_pod(client: JobsClient, name: str, uid: str) -> Obj | None:
    try:
        pod = RetryingCluster(client).get(POD, name, client.default_namespace)
    except (Forbidden, NotFound) as error:  # the identity is then found in other ways
        log.warning("event=own_pod_not_read name=%s error=%s", name, error.message)
        return None
    return pod if uid in ("", uid_of(pod)) else None  # another one is of another cluster than this step runs on


def _of_addresses(artifacts: Mapping[str, Any]) -> OwnStep:
    """Who a step of a backend is by the addresses of its outputs: .../RUN/TASK/UUID/NAME. A new run has other ones."""
    for artifact in artifacts.values():
        for one in artifact.get("artifacts") or []:
            *_, run, task, unique = ("", "", *str(one.get("uri") or "").split("/")[:-1])
            if _UUID.fullmatch(unique):
                return OwnStep(f"{task}/{unique}", run_instance=run if _UUID.fullmatch(run) else "")
    return OwnStep(is_certain=False)


def _workflow_of(pod: Obj, namespace: str) -> Workflow | None:
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("kind") == "Workflow":
            reference = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
            return Workflow(owner["name"], namespace, reference)
    return None


def path_of_node(node: str, workflow: str) -> str:
    """Return the place in the pipeline that the name of a node of Argo tells: without the tries, which differ.

    `flow(0).root(0).for-loop-2(0).iteration-iterations(1:1)(0).iteration-item(0).train(0)` of `flow` is `for-loop-2[1]/train`.
    """
    path: list[str] = []
    for part in _TRY.sub("", node.removeprefix(workflow)).split("."):
        if (iteration := _ITERATION.search(part)) is not None and path:
            path[-1] += f"[{iteration[1]}]"
        elif part and part not in _WITHOUT_MEANING:
            path.append(part)
    return "/".join(path)


def server_retries(node: str, workflow: str) -> ServerRetries:
    """Return what the server retries: with `templateDefaults`, every part of a node's name has the number of its try. Pure."""
    if not workflow or not node.startswith(workflow):  # a name of another form: nothing is known
        return ServerRetries.unknown
    has_defaults = re.match(r"\(\d+\)", node[len(workflow) :]) is not None
    return ServerRetries.lost_pods if has_defaults else ServerRetries.failures


def warn_without_guard(client: JobsClient, namespace: str) -> bool:
    """Write a warning to the step's log if nothing ends the jobs of this namespace that nobody waits for; returns whether something
    does. Without the right to see that there is no warning.
    """
    try:
        is_guarded = client.is_guarded(namespace)
    except ApiError as error:  # what follows meets it, too, if it lasts
        log.debug("event=guard_not_known namespace=%s error=%s", namespace, error.message)
        return False
    if is_guarded is False:
        write_line(NO_GUARD)
    return bool(is_guarded)


def warn_without_exit_handler(client: JobsClient, own: OwnStep) -> None:
    """Write a warning to the step's log, if its workflow can be read and nothing cleans up after this step."""
    if own.workflow is None:
        return
    try:
        workflow = client.get(WORKFLOW, own.workflow.name, own.workflow.namespace)
    except ApiError as error:  # the permission is optional
        log.debug("event=workflow_not_read name=%s error=%s", own.workflow.name, error.message)
        return
    if is_cleaned_up(workflow, own.path if own.is_place_of_node else "") is False:
        write_line(WARNING)


def is_cleaned_up(workflow: Obj, path: str) -> bool | None:
    """Return whether an exit handler around the step at this place of a pipeline cleans up; None if the workflow does not tell.

    Without a known place every exit handler counts. Pure.
    """
    spec = workflow.get("spec") or {}
    templates = {template.get("name"): template for template in spec.get("templates") or []}
    if not templates:
        return None
    parameters = {one.get("name"): str(one.get("value") or "") for one in (spec.get("arguments") or {}).get("parameters") or []}
    around = {part.partition("[")[0] for part in path.split("/")}
    return any(
        (not path or task.get("name") in around) and _cleans_up(templates.get(hook), parameters)
        for template in templates.values()
        for task, hook in _hooks(template)
    )


def _cleans_up(hook: Obj | None, parameters: dict[Any, str]) -> bool:
    values = [
        str(argument.get("value") or "")
        for task in _tasks(hook or {})
        for argument in (task.get("arguments") or {}).get("parameters") or []
    ]
    return any(
        _CLEANS_UP.search(_PARAMETER.sub(lambda found: parameters.get(found[1], ""), value)) is not None for value in values
    )


def _tasks(template: Obj) -> list[Any]:
    return (template.get("dag") or {}).get("tasks") or []


def _hooks(template: Obj) -> Iterator[tuple[Obj, str]]:
    """Yield the tasks with an exit hook, and the template of the hook."""
    for task in _tasks(template):
        hook = ((task.get("hooks") or {}).get("exit") or {}).get("template")
        if hook:
            yield task, str(hook)
