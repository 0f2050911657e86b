"""The progress of a run, with the newest line of each training, and the logs of its steps.

A log is read through the server, else with a kubeconfig that leads to the cluster of its pods. Neither is certain: gateways may not
pass the server's path for logs on, and pods are deleted with their workflow, by default an hour after the end of a run. Then the
command that reads the log is shown. The kubeconfig also tells which pod belongs to which task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, labels_of, uid_of
from trainwright.cluster.answers import in_time
from trainwright.cluster.connect import NoCluster, connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.jobs.logs.log_excerpt import last_printed
from trainwright.jobs.state.progress import is_progress_line
from trainwright.jobs.state.waiters import POD_RUN_LABEL
from trainwright.pipeline_runs.errors import ServerError
from trainwright.pipeline_runs.runs import FINAL_STATES, SUCCEEDED, state_of
from trainwright.pipeline_runs.server import PipelineServer
from trainwright.pipeline_runs.step_pods import lacks_pods, with_pods
from trainwright.pipeline_runs.task_nodes import Task, tasks_of
from trainwright.text.foreign_texts import plain

log = logging.getLogger(__name__)
_CONTAINER = "main"
_LOG_PATH = "/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log"
"""The server answers it beside those of its OpenAPI, as long as the pod exists or its log is archived."""
_BYTES = 64 * 1024
_LINES = 200
_DEFAULT_NAMESPACE = "kubeflow"
"""Where a server for one user runs its steps, unless it was installed elsewhere."""
_NO_LOGS = (401, 403, 404, 405)
_RUNNING = "RUNNING"
_MOST_LAST_LINES = 3
"""Lines of progress that are shown of a training whose log was not read before its end."""


class StepLogs:
    """The logs of the pods of one run, and which pods its tasks have. `on_note` is called once if the pods cannot be listed."""

    def __init__(self, server: PipelineServer, run_id: str, on_note: Callable[[str], None]):
        self._server, self._run_id, self._on_note = server, run_id, on_note
        self._pods: dict[str, Obj] = {}
        self._lists_pods = True
        self._server_has_logs = True
        self._cluster: KubernetesCluster | None = None
        self._cluster_was_tried = False

    def with_pods(self, run: Obj) -> Obj:
        """Return the run with the pods of its tasks, if the server names none of them and they can be listed."""
        if not lacks_pods(run):  # servers of other versions name the pods
            return run
        if self._lists_pods:
            self._pods |= {uid_of(pod): pod for pod in self._list_pods()}  # also those that have been deleted since
        return with_pods(run, self._pods.values()) if self._pods else run

    def last_lines(self, pod: str) -> list[str]:
        """Return the last lines of a pod's log, without control characters; none if they cannot be read."""
        lines = self._from_server(pod) or self._from_cluster(pod)
        return [plain(line) for line in lines if line.strip()][-_LINES:]

    def command(self, pod: str) -> str:
        """Return the command that shows a pod's log."""
        return f"kubectl logs -n {self._server.namespace or _DEFAULT_NAMESPACE} {pod} -c {_CONTAINER}"

    def _from_server(self, pod: str) -> list[str]:
        if not self._server_has_logs:  # an earlier request has shown it
            return []
        try:
            path = {"run_id": self._run_id, "pod": pod}
            text: bytes = self._server.calls.read(self._tail, _LOG_PATH, "GET", path, auth_settings=["Bearer"])
        except ServerError as error:
            self._server_has_logs = error.status not in _NO_LOGS and error.status != 200
            log.info("event=server_log_not_read pod=%s error=%s", pod, error)
            return []
        return text.decode("utf-8", "replace").splitlines()

    def _tail(self, response: Any) -> bytes:
        """Return the end of a log; the server answers with the whole, and what stands before it with a page."""
        if "html" in (response.headers.get("Content-Type") or ""):
            raise self._server.calls.not_kubeflow_pipelines()
        tail = b""
        for piece in in_time(response, self._server.address):
            tail = (tail + piece)[-_BYTES:]
        return tail

    def _from_cluster(self, pod: str) -> list[str]:
        cluster = self._connected()
        if cluster is None:
            return []
        for namespace in self._namespaces(cluster):
            try:
                found = cluster.get(POD, pod, namespace)
                if labels_of(found).get(POD_RUN_LABEL) == self._run_id:  # not a pod of the same name in another cluster
                    return last_printed(cluster, found, _CONTAINER, previous=False)
            except (NotFound, Forbidden) as error:
                log.info("event=pod_log_not_read pod=%s namespace=%s error=%s", pod, namespace, error.message)
            except ApiError as error:  # each further request could wait as long for its answer
                log.info("event=cluster_not_asked_for_logs error=%s", error.message)
                self._cluster = None
                break
        return []

    def _list_pods(self) -> list[Obj]:
        """Return the pods of the run. If they cannot be listed, notes why, and they are not asked for again."""
        cluster = self._connected()
        if cluster is None:
            return self._without_pods("no kubeconfig leads to the cluster of the run")
        refused: list[str] = []
        for namespace in self._namespaces(cluster):
            try:
                pods = cluster.list(POD, namespace, label_selector=f"{POD_RUN_LABEL}={self._run_id}").items
            except Forbidden:  # another namespace may be allowed
                refused.append(namespace)
                continue
            except ApiError as error:  # each further request could wait as long for its answer
                return self._without_pods(f"pods cannot be listed: {error.message}")
            if pods:
                return pods
        if refused:
            return self._without_pods(f"not allowed to list pods in the namespace {' and '.join(refused)}")
        return []  # none yet, or deleted already

    def _without_pods(self, why: str) -> list[Obj]:
        self._lists_pods = False
        self._on_note(f"{why}: tasks are shown as the server lists them, without their pods, logs and progress")
        return []

    def _namespaces(self, cluster: KubernetesCluster) -> list[str]:
        return [*dict.fromkeys((self._server.namespace or _DEFAULT_NAMESPACE, cluster.default_namespace))]

    def _connected(self) -> KubernetesCluster | None:
        if not self._cluster_was_tried:
            self._cluster_was_tried = True
            try:
                self._cluster = connect()
            except NoCluster as error:
                log.info("event=no_cluster_for_logs error=%s", error)
        return self._cluster


class TrainingProgress:
    """Called with the run each time it is seen; returns whether a state is new.

    Calls `show` with a task's name, empty for the run itself, and its new state or line of progress. `groups` are names of what
    consists of tasks in the pipeline; they are not shown.
    """

    def __init__(self, logs: StepLogs, groups: frozenset[str], show: Callable[[str, str], None]):
        self._logs, self._groups, self._show = logs, groups, show
        self._states: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def __call__(self, run: Obj) -> bool:
        tasks = tasks_of(self._logs.with_pods(run), self._groups)
        current = {"": state_of(run), **{task.name: task.state for task in tasks}}
        changed = [name for name, state in current.items() if self._states.get(name) != state]
        has_ended = current[""] in FINAL_STATES
        for task in tasks:
            if task.name in changed and task.state == SUCCEEDED and task.name not in self._lines:
                self._show_progress(task, _MOST_LAST_LINES)
        for name in sorted(changed, key=lambda name: has_ended and not name):  # the end of the run is the last
            self._show(name, current[name])
        self._states |= current
        for task in tasks if not has_ended else ():
            if task.state == _RUNNING:
                self._show_progress(task, 1)
        return bool(changed)

    def _show_progress(self, task: Task, most: int) -> None:
        """Show the last lines of progress in the log of a task, unless the newest was shown before."""
        lines = [line for line in self._logs.last_lines(task.pod) if is_progress_line(line)] if task.pod else []
        if lines and lines[-1] != self._lines.get(task.name):
            self._lines[task.name] = lines[-1]
            for line in lines[-most:]:
                self._show(task.name, line)
