"""The base of the operators that read or write the workspace: in the worker if it mounts the claim, else in a pod that does."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.jobs.request.setting_names import STEP_SETTINGS
from trainwright.operators import cancellation
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.credentials import credentials, step_credentials
from trainwright.operators.values.literal_secrets import reject_literal_secrets
from trainwright.operators.values.rendered_values import parse_object
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.values.text_templates import TextTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.steps.requests import PromoteModel, ReadChampion, RollBackOnce, StepRun
    from trainwright.steps.workspace_steps import WorkspaceSteps


AUTO, WORKER, CLUSTER = "auto", "worker", "cluster"
_MOUNT = "/workspace"


class WorkspaceOperator(TextTemplates, BaseOperator):
    """Does steps on the workspace of a run, see `trainwright.steps.workspace_steps`; subclasses document the parameters."""

    template_fields: Collection[str] = (
        "workspace",
        "workspace_path",
        "runs_on",
        "job",
        "run_id",
        "namespace",
        "conn_id",
        "store_conn_id",
        "hub_conn_id",
    )
    template_fields_renderers = {"job": "json"}

    def __init__(
        self,
        *,
        workspace: str = "",
        workspace_path: str = "",
        runs_on: str = AUTO,
        job: dict[str, Any] | str | None = None,
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        store_conn_id: str | None = None,
        hub_conn_id: str | None = None,
        **kwargs: Any,
    ):
        reject_literal_secrets({"job": job})
        super().__init__(**kwargs)
        if "{{" not in runs_on and runs_on not in (AUTO, WORKER, CLUSTER):
            raise ValueError(f"runs_on={runs_on!r}: expected {AUTO}, {WORKER} or {CLUSTER}")
        self.workspace, self.workspace_path, self.runs_on, self.job = workspace, workspace_path, runs_on, job
        self.run_id, self.namespace, self.conn_id = run_id, namespace, conn_id
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id

    @property
    def runs_in_worker(self) -> bool:
        """Whether the worker does the steps. Raises ValueError for another `runs_on`, and for a cluster without a workspace."""
        if self.runs_on == CLUSTER:
            if not self.workspace:
                raise ValueError("runs_on=cluster: set workspace, the claim that the pods mount (pvc://CLAIM)")
            return False
        if self.runs_on not in (AUTO, WORKER):
            raise ValueError(f"runs_on={self.runs_on!r}: expected {AUTO}, {WORKER} or {CLUSTER}")
        return self.runs_on == WORKER or bool(self.workspace_path) or not self.workspace

    @property
    def path_in_worker(self) -> Path:
        """Where the worker has the workspace."""
        return Path(self.workspace_path or _MOUNT)

    def check_places(self, **places: Any) -> None:
        """Raise PlaceNotAllowed for the first of these places, or of the workspace, that the lists do not allow."""
        from trainwright.operators.values.allowed_places import check_places

        connections = (self.conn_id, self.store_conn_id, self.hub_conn_id)
        check_places(connections, workspace=self.workspace, workspace_path=self.workspace_path, **places)

    @contextmanager
    def steps(self, context: Context) -> Iterator[WorkspaceSteps]:
        """Do steps in the block: `trainwright.steps.workspace_steps.WorkspaceSteps`."""
        from trainwright.steps.workspace_steps import HereSteps

        if self.runs_in_worker:
            with credentials(self.store_conn_id, self.hub_conn_id):
                yield HereSteps(self.path_in_worker)
        else:
            yield self._cluster_steps(context, self.run_id)

    def step_run(self, context: Context) -> StepRun:
        """The run, as steps know it."""
        from trainwright.steps.requests import StepRun

        identity = task_identity(context, self.run_id)
        return StepRun(identity.owner, identity.run, identity.map_index)

    def _cluster_steps(self, context: Context, run: str = "") -> Any:
        from trainwright.jobs.request.workspace import Workspace
        from trainwright.operators.reporting.task_event_printer import TaskEventPrinter
        from trainwright.steps.on_cluster import ClusterSteps

        cluster = TrainwrightHook(self.conn_id).get_conn()
        settings = self.job_settings()
        on_cancel = str(settings.get("on_cancel") or "suspend")
        return ClusterSteps(
            cluster,
            Workspace.parse(self.workspace),
            task_identity(context, run, on_cancel=on_cancel),
            self.namespace or cluster.default_namespace,
            settings=settings,
            credentials=step_credentials(self.store_conn_id, self.hub_conn_id),
            event_printer=TaskEventPrinter(lambda line: self.log.info("%s", line)),
            on_signal=cancellation.on_signal(context, on_cancel),
        )

    def job_settings(self) -> dict[str, Any]:
        """The settings of the jobs in which steps run. Raises ValueError for an unknown one."""
        from trainwright.text.suggest import suggest

        settings = parse_object("job", self.job)
        for name in settings:
            if name not in STEP_SETTINGS:
                raise ValueError(f"job: the setting {name[:80]!r} is unknown; {suggest(name, STEP_SETTINGS)}")
        return settings


class ExportsOperator(WorkspaceOperator):
    """Does steps on the folder of all exports: in the worker, or in a pod if only pods see it, since it is on the claim."""

    def do(self, request: PromoteModel | ReadChampion | RollBackOnce, context: Context) -> dict[str, Any]:
        """Return the result of the step, see `trainwright.steps.workspace_steps`."""
        from trainwright.steps.on_cluster import only_pods_see
        from trainwright.steps.requests import StepRun
        from trainwright.steps.workspace_steps import do_step
        from trainwright.storage.errors import NotMounted

        if self.runs_on != WORKER and only_pods_see(request.export_uri):
            if not self.workspace:
                raise NotMounted(
                    f"export_uri: {request.export_uri} is on the claim of a workspace, which this worker does not mount there; set "
                    "workspace to that claim (pvc://CLAIM), so that a pod does this"
                )
            # Not as the run that is named: another DAG run of that name would get this one's answer.
            result: dict[str, Any] = self._cluster_steps(context)(request, self.step_run(context))
            return result
        with credentials(self.store_conn_id, self.hub_conn_id):
            return do_step(self.path_in_worker, request, StepRun("", ""))
