"""Let the champion be again what it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.jobs.export_errors import reject_unusable_exports
from trainwright.operators.values.credentials import credentials
from trainwright.operators.values.settings import step_fields
from trainwright.operators.values.task_identity import task_identity

if TYPE_CHECKING:
    from airflow.sdk import Context


class RollBackModelOperator(BaseOperator):
    """Restore the previous export of an alias, if it still exists and is complete.

    The task is recorded with the reason: a retry after a roll back that has succeeded changes nothing. Clearing the task rolls back
    again.

    :param export_uri: Folder of all exports, as for the export of a checkpoint.
    :param alias: champion, challenger, or another name.
    :param expected_digest: Digest of the manifest that the alias must name now. Empty: whatever it names.
    :param reason: Recorded with the change.
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :return: URI of the export that the alias names now.
    """

    template_fields = (*step_fields("RollBackModel"), "run_id", "store_conn_id")

    def __init__(
        self,
        *,
        # Written by `make edges` from RollBackModel.
        export_uri: str,
        alias: str = "champion",
        expected_digest: str = "",
        reason: str = "",
        # End of what `make edges` writes.
        run_id: str = "",
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from RollBackModel.
        self.export_uri = export_uri
        self.alias = alias
        self.expected_digest = expected_digest
        self.reason = reason
        # End of what `make edges` writes.
        self.run_id, self.store_conn_id = run_id, store_conn_id

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> str:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.requests import RollBackModel
        from trainwright.steps.roll_back import roll_back_once

        check_places((self.store_conn_id,), export_uri=self.export_uri)
        request, identity = RollBackModel.from_parameters(vars(self)), task_identity(context, self.run_id)
        with credentials(self.store_conn_id, None):
            record = roll_back_once(**request.model_dump(), step=f"{identity} {identity.submitter.execution}".rstrip())
        self.log.info("%s: %s", self.alias, record.current.uri)
        return str(record.current.uri)
