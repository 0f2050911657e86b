"""Start a run, and create its workspace if it does not exist."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.settings import step_fields
from trainwright.operators.values.task_identity import run_of_group, task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


class StartRunOperator(BaseOperator):
    """Set the id of a run and create its workspace if necessary, before any task uses it.

    :param workspace: pvc://CLAIM[/FOLDER], the name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.
    :param num_nodes: Number of nodes that share a new claim.
    :param workspace_path: where the claim is mounted in the workers; empty if it is not.
    :param run_id: id of the run; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the claim; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: run_id, claim, workspace (for the other operators), path (of the workspace in the workers, empty if they do not mount it).
    """

    template_fields = (*step_fields("StartRun"), "workspace_path", "run_id", "namespace", "conn_id")

    def __init__(
        self,
        *,
        # Written by `make edges` from StartRun.
        workspace: str,
        num_nodes: int | str = 1,
        # End of what `make edges` writes.
        workspace_path: str = "",
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from StartRun.
        self.workspace = workspace
        self.num_nodes = num_nodes
        # End of what `make edges` writes.
        self.workspace_path, self.run_id, self.namespace, self.conn_id = workspace_path, run_id, namespace, conn_id

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.requests import StartRun
        from trainwright.steps.start import start_run

        check_places((self.conn_id,), workspace=self.workspace, workspace_path=self.workspace_path)
        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity = task_identity(context, self.run_id or run_of_group(context))
        started = start_run(
            cluster,
            **StartRun.from_parameters(vars(self)).model_dump(),
            owner=identity.owner,
            run_id=identity.run,
            namespace=self.namespace or cluster.default_namespace,
            workspace_path=str(self.workspace_path),
        )
        return asdict(started)
