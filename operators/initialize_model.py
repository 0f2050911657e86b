"""Prepare a base model in the workspace, before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class InitializeModelOperator(WorkspaceOperator):
    """Fetch a model, check that it is complete and has safetensors weights, and store it in the workspace by its digest.

    :param model_uri: Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
    :param workspace: claim with the workspace, pvc://CLAIM[/FOLDER], which pods mount if the worker does not.
    :param workspace_path: where the worker mounts the workspace; empty if it does not.
    :param runs_on: worker, cluster (in a pod that mounts the claim, so that the worker needs neither the volume nor the room), or
        auto: the worker if workspace_path is set, else the cluster. Without both it is the worker, at /workspace.
    :param job: settings of the pods on the cluster, as in TrainJobOperator: runtime (default: workspace-step), image, env,
        resources_per_node, node_selector, tolerations, queue_name, run_timeout_seconds, on_cancel ...
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of these pods; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: connection with the token of the hub.
    :return: source, revision, digest, shape (sizes of the model, for model_shape of TrainJobOperator; empty if they are not known).
    """

    template_fields = (
        # Written by `make edges` from InitializeModel.
        *("model_uri",),
        # End of what `make edges` writes.
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from InitializeModel.
        model_uri: str,
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from InitializeModel.
        self.model_uri = model_uri
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.requests import InitializeModel

        of_run = self.of_run()
        request = self.asked(
            InitializeModel,
            {
                # Written by `make edges` from InitializeModel.
                "model_uri": self.model_uri,
                # End of what `make edges` writes.
            },
            of_run,
        )
        with self.steps(context, of_run) as steps:
            return steps(request, self.step_run(context, of_run))
