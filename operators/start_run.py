"""Start a run: create its workspace where it does not exist."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk import BaseOperator

from trainwright.operators.failing import retried_unless_in_vain
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.task_identity import task_identity


class StartRunOperator(BaseOperator):
    """Name a run, and see to it that its workspace exists, before any task uses it.

    :param workspace: pvc://CLAIM[/FOLDER], the bare name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain=] to create it.
    :param workspace_path: where the workers see the claim.
    :param num_nodes: nodes that share a claim that is created.
    :param run_id: names the run in place of the DAG run's id.
    :param namespace: where the claim is; empty takes the connection's.
    :param conn_id: a connection of the type `trainwright` or `kubernetes`; None uses the environment.
    :return: run_id, claim, workspace (as the other operators take it), path (where the workers find it).
    """

    template_fields = ("workspace", "workspace_path", "num_nodes", "run_id", "namespace", "conn_id")

    def __init__(
        self,
        *,
        workspace: str,
        workspace_path: str = "/workspace",
        num_nodes: int | str | None = 1,
        run_id: str = "",
        namespace: str = "",
        conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.workspace, self.workspace_path, self.num_nodes = workspace, workspace_path, num_nodes
        self.run_id, self.namespace, self.conn_id = run_id, namespace, conn_id

    @retried_unless_in_vain()
    def execute(self, context: Any) -> dict[str, Any]:
        from trainwright.steps.start import start_run

        cluster = TrainwrightHook(self.conn_id).get_conn()
        identity = task_identity(context, self.run_id)
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
