"""Pull a version of data with DVC into the workspace, before it is preprocessed or prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PullDvcDataOperator(WorkspaceOperator):
    """Pull a version of data with DVC into the workspace, from a DVC repository or from any source.

    Without repo, a DVC repository in the workspace makes a version of the source's present state, so that every run can be repeated
    with the data that it used. What is there already is not fetched again. DVC is installed on first use, see docs/tools.md.

    :param source: Without repo: a path, file://, s3://, https:// or another address that `dvc import-url` takes.
    :param md5: Without repo: DVC's MD5 of an earlier version of a source, instead of its present state.
    :param repo: Git repository with DVC: its address, or a path.
    :param path: File or folder in repo.
    :param rev: Branch, tag or commit of repo. Empty: the default branch.
    :param remote: DVC remote to pull from. Empty: the default one of repo.
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
    :return: data_uri (the folder, where this step sees it), digest, revision, md5, size.
    """

    template_fields = (
        # Written by `make edges` from PullDvcData.
        *("source", "md5", "repo", "path", "rev", "remote"),
        # End of what `make edges` writes.
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from PullDvcData.
        source: str = "",
        md5: str = "",
        repo: str = "",
        path: str = "",
        rev: str = "",
        remote: str = "",
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from PullDvcData.
        self.source = source
        self.md5 = md5
        self.repo = repo
        self.path = path
        self.rev = rev
        self.remote = remote
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.requests import PullDvcData

        of_run = self.of_run()
        request = self.asked(
            PullDvcData,
            {
                # Written by `make edges` from PullDvcData.
                "source": self.source,
                "md5": self.md5,
                "repo": self.repo,
                "path": self.path,
                "rev": self.rev,
                "remote": self.remote,
                # End of what `make edges` writes.
            },
            of_run,
        )
        with self.steps(context, of_run) as steps:
            return steps(request, self.step_run(context, of_run))
