"""The base of the operators that read or write the workspace: in the worker if it mounts the claim, else in a pod that does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator

from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.connections import credentials, step_credentials
from trainwright.operators.values.given_parameters import TextTemplates
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.jobs.request.setting import Settings
    from trainwright.steps.requests import PromoteModel, ReadChampion, RollBackOnce, Run, StepRun
    from trainwright.steps.workspace_steps import WorkspaceSteps


S = TypeVar("S", bound="Settings")
AUTO, WORKER, CLUSTER = "auto", "worker", "cluster"
_MOUNT = "/workspace"


class WorkspaceOperator(TextTemplates, BaseOperator):
    """Does steps on the workspace of a run, see `trainwright.steps.workspace_steps`; subclasses document the parameters."""

    template_fields: Collection[str] = (
        "run",
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
    template_fields_renderers = {"job": "json", "run": "json"}

    def __init__(
        self,
        *,
        run: dict[str, Any] | str | None = None,
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
        super().__init__(**kwargs)
        if "{{" not in runs_on and runs_on not in (AUTO, WORKER, CLUSTER):
            raise ValueError(f"runs_on={runs_on!r}: expected {AUTO}, {WORKER} or {CLUSTER}")
        self.run = run
        self.workspace, self.workspace_path, self.runs_on, self.job = workspace, workspace_path, runs_on, job
        self.run_id, self.namespace, self.conn_id = run_id, namespace, conn_id
        self.store_conn_id, self.hub_conn_id = store_conn_id, hub_conn_id

    def of_run(self) -> Run:
        """The run of the task: what StartRunOperator has returned, and what the task was given apart. Raises InvalidSettings."""
        from trainwright.steps.requests import Run

        return Run.of_step(
            self.run,
            run_id=self.run_id,
            workspace=self.workspace,
            workspace_path=self.workspace_path,
            namespace=self.namespace,
            runs_on="" if self.runs_on == AUTO else self.runs_on,
            job=self.job,
        )

    def asked(self, cls: type[S], given: Mapping[str, Any], run: Run, rest: S | None = None) -> S:
        """The request of the task; `rest` are the settings that its run has for it.

        Raises InvalidSettings, LiteralSecret, and PlaceNotAllowed as `check_places`.
        """
        from trainwright.operators.values.given_run import asked

        request = asked(cls, given, rest)
        self.check_places(run, request)
        return request

    def check_places(self, run: Run, request: Settings | None = None) -> None:
        """Raise PlaceNotAllowed for the first place of a request, of the workspace or of its pods that the lists do not allow."""
        from trainwright.operators.values.allowed_places import check_places, places_given

        connections = (self.conn_id, self.store_conn_id, self.hub_of(run))
        check_places(connections, **places_given(run.only("workspace", "workspace_path", "job").given_values(), type(run)))
        if request is not None:
            check_places(connections, **places_given(request.given_values(), type(request)))

    @contextmanager
    def steps(self, context: Context, run: Run) -> Iterator[WorkspaceSteps]:
        """Do steps in the block: `trainwright.steps.workspace_steps.WorkspaceSteps`."""
        from trainwright.steps.workspace_steps import HereSteps

        if runs_in_worker(run):
            with credentials(self.store_conn_id, self.hub_of(run)):
                yield HereSteps(path_in_worker(run))
        else:
            yield self._cluster_steps(context, run, run.run_id)

    def step_run(self, context: Context, run: Run) -> StepRun:
        """The run, as steps know it."""
        from trainwright.steps.requests import StepRun

        identity = task_identity(context, run.run_id)
        return StepRun(identity.owner, identity.run, identity.map_index)

    def hub_of(self, run: Run) -> str | None:
        """The connection of the hub: the task's, else the run's."""
        return self.hub_conn_id or run.hub_conn_id or None

    def _cluster_steps(self, context: Context, run: Run, run_id: str) -> Any:
        from trainwright.jobs.request.workspace import Workspace
        from trainwright.operators import cancellation
        from trainwright.operators.reporting.task_events import TaskEventPrinter
        from trainwright.steps.on_cluster import ClusterSteps

        cluster, on_cancel = TrainwrightHook(self.conn_id).get_conn(), run.job.ending.on_cancel
        return ClusterSteps(
            cluster,
            Workspace.parse(run.workspace),
            task_identity(context, run_id, on_cancel=on_cancel),
            run.namespace or cluster.default_namespace,
            job=run.job,
            credentials=step_credentials(self.store_conn_id, self.hub_of(run)),
            event_printer=TaskEventPrinter(lambda line: self.log.info("%s", line)),
            on_signal=cancellation.on_signal(context, on_cancel),
        )


def runs_in_worker(run: Run) -> bool:
    """Whether the worker does the steps of a run. Raises ValueError for a cluster without a workspace."""
    if run.runs_on == CLUSTER:
        if not run.workspace:
            raise ValueError("runs_on=cluster: set workspace, the claim that the pods mount (pvc://CLAIM)")
        return False
    return run.runs_on == WORKER or bool(run.workspace_path) or not run.workspace


def path_in_worker(run: Run) -> Path:
    """Where the worker has the workspace of a run."""
    return Path(run.workspace_path or _MOUNT)


class ExportsOperator(WorkspaceOperator):
    """Does steps on the folder of all exports: in the worker, or in a pod if only pods see it, since it is on the claim."""

    def do(self, request: PromoteModel | ReadChampion | RollBackOnce, context: Context, run: Run) -> dict[str, Any]:
        """Return the result of the step, see `trainwright.steps.workspace_steps`."""
        from trainwright.steps.on_cluster import only_pods_see
        from trainwright.steps.requests import StepRun
        from trainwright.steps.workspace_steps import do_step
        from trainwright.storage.errors import NotMounted

        if run.runs_on != WORKER and only_pods_see(request.export_uri):
            if not run.workspace:
                raise NotMounted(
                    f"export_uri: {request.export_uri} is on the claim of a workspace, which this worker does not mount there; set "
                    "workspace to that claim (pvc://CLAIM), so that a pod does this"
                )
            # Not as the run that is named: another DAG run of that name would get this one's answer.
            result: dict[str, Any] = self._cluster_steps(context, run, "")(request, self.step_run(context, run))
            return result
        with credentials(self.store_conn_id, self.hub_of(run)):
            return do_step(path_in_worker(run), request, StepRun("", ""))
