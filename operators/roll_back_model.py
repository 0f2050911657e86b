"""Let the champion be again what it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast, reject_unusable_exports
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.workspace_operator import ExportsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class RollBackModelOperator(ExportsOperator):
    """Restore the previous export of an alias, if it still exists and is complete.

    The task is recorded with the reason: a retry after a roll back that has succeeded changes nothing. Clearing the task rolls back
    again.

    :param export_uri: Folder of all exports, as for the export of a checkpoint.
    :param alias: champion, challenger, or another name.
    :param expected_digest: Digest of the manifest that the alias must name now. Empty: whatever it names.
    :param reason: Recorded with the change.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
    :param workspace: claim with the exports, pvc://CLAIM[/FOLDER], for `file:///trainwright-workspace/...`: if the worker does not see
        them, a pod that mounts the claim does this.
    :param workspace_path: not used.
    :param runs_on: auto, or worker for no pod.
    :param job: settings of the pod, as in InitializeDatasetOperator.
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the pod; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes` for the pod; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: not used.
    :return: URI of the export that the alias names now.
    """

    template_fields = (
        # Written by `make edges` from RollBackModel.
        *("export_uri", "alias", "expected_digest", "reason"),
        # End of what `make edges` writes.
        *ExportsOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from RollBackModel.
        export_uri: str,
        alias: str = "champion",
        expected_digest: str = "",
        reason: str = "",
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from RollBackModel.
        self.export_uri = export_uri
        self.alias = alias
        self.expected_digest = expected_digest
        self.reason = reason
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> str:
        from trainwright.steps.requests import RollBackOnce

        of_run = self.of_run()
        identity = task_identity(context, of_run.run_id)
        step = f"{identity} {identity.submitter.execution}".rstrip()
        request = self.asked(
            RollBackOnce,
            {
                # Written by `make edges` from RollBackModel.
                "export_uri": self.export_uri,
                "alias": self.alias,
                "expected_digest": self.expected_digest,
                "reason": self.reason,
                # End of what `make edges` writes.
            },
            of_run,
        ).having(step=step)
        uri = str(self.do(request, context, of_run)["uri"])
        self.log.info("%s: %s", request.alias, uri)
        return uri
