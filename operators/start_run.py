"""Start a run, and create its workspace if it does not exist."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.task_identity import run_of_group, task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartRunOperator(BaseOperator):
    """Set the id of a run and create its workspace if necessary, before any task uses it.

    :param workspace: pvc://CLAIM[/FOLDER], the name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.
    :param workspace_path: where the claim is mounted in the workers; empty if it is not.
    :param num_nodes: number of nodes that share a new claim.
    :param run_id: id of the run; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the claim; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: run_id, claim, workspace (for the other operators), path (of the workspace in the workers, empty if they do not mount it).
    """

    template_fields = ("workspace", "workspace_path", "num_nodes", "run_id", "namespace", "conn_id")

    def __init__(
        self,
        *,
        workspace: str,
        workspace_path: str = "",
        num_nodes: int | str | None = 1,
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.workspace, self.workspace_path, self.num_nodes = workspace, workspace_path, num_nodes
        self.run_id, self.namespace, self.conn_id = run_id, namespace, conn_id

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.start import start_run

        check_places((self.conn_id,), workspace=self.workspace, workspace_path=self.workspace_path)
        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity = task_identity(context, self.run_id or run_of_group(context))
        started = start_run(
            cluster,
            str(self.workspace),
            owner=identity.owner,
            run_id=identity.run,
            namespace=self.namespace or cluster.default_namespace,
            workspace_path=str(self.workspace_path),
            num_nodes=int(self.num_nodes or 1),
        )
        return asdict(started)
