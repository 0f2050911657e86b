"""End a run on its workspace: note it, and delete the folders of earlier runs that need not be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class RetireRunOperator(WorkspaceOperator):
    """Record that a run has ended, and delete the folders of other runs beyond the retention; never those of live runs.

    EvaluateOperator does the same at the end of its run; this is for runs that end without one.

    :param retention: folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
    :param workspace: claim with the workspace, pvc://CLAIM[/FOLDER], which pods mount if the worker does not.
    :param workspace_path: where the worker mounts the workspace; empty if it does not.
    :param runs_on: worker, cluster or auto, as in InitializeDatasetOperator.
    :param job: settings of the pods on the cluster, as there.
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the run's jobs and of these pods; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param store_conn_id: not used.
    :param hub_conn_id: not used.
    :return: names of the deleted folders.
    """

    template_fields = ("retention", *WorkspaceOperator.template_fields)

    def __init__(self, *, retention: str = "always", **kwargs: Any):
        super().__init__(**kwargs)
        self.retention = retention
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> list[str]:
        from trainwright.steps.ends.retire import retirement

        of_run = self.of_run()
        self.check_places(of_run)
        cluster, identity = TrainwrightHook(self.conn_id).get_conn(), task_identity(context, of_run.run_id)
        namespace = of_run.namespace or cluster.default_namespace
        ended = retirement(
            cluster, run_id=identity.run, namespace=namespace, retention=self.retention, map_index=identity.map_index
        )
        with self.steps(context, of_run) as steps:
            deleted: list[str] = steps(ended, self.step_run(context, of_run))["deleted"]
        return deleted
