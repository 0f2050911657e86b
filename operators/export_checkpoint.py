"""Export a complete checkpoint of a run, the last or the best; its manifest is written last, when every stored byte is confirmed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.reporting.lineage import ExportLineage, describe_outlets
from trainwright.operators.reporting.links import NO_LINKS, CheckpointLink, begin_links, show_checkpoint_link
from trainwright.operators.values.rendered_values import parse_number
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ExportCheckpointOperator(ExportLineage, WorkspaceOperator):
    """Copy the run's last or best complete checkpoint to a store, confirm every stored byte, and write the manifest last.

    :param export_uri: file:///path or s3://bucket/prefix for exports; each run has its own folder below it.
    :param trainjob: TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.
    :param folder: Folder of the training in the workspace, as the training returns it. Empty: that of the TrainJob.
    :param which: last, or best: the checkpoint with the best metric of the training (needs eval_strategy and
        --load_best_model_at_end, or --metric_for_best_model). Empty: best if the training loads the best at its end, else last.
    :param resumable: Whether to export optimizer and random states too, so that a training can resume from there.
    :param supersede: Whether to publish also if the run has another export of this step with other files.
    :param best_metric: Logged metric that chooses the run's best export, which best.json names.
    :param greater_is_better: Whether a greater best_metric is better.
    :param usage: What the training used, as its step returns it, for the card.
    :param merge_adapter: Whether to export also the model that results from merging the adapter into its base model, beside the
        adapter's exports.
    :param trial_index: number of the trial of a sweep, as PickTrialOperator returns it; -1 outside of sweeps.
    :param beside: TrainJob that is still training, as TrainJobOperator(wait_for_completion=False) returns it: its newest complete
        checkpoint is exported again and again, until it has ended and the last one is exported.
    :param every_seconds: seconds between two exports beside the training.
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
    :return: uri, digest, step, bytes, metrics (those that training had logged at this step); with merge_adapter also merged_uri and
        merged_digest.
    """

    exported: dict[str, Any] | None = None
    """What this worker has exported, and from which folder of a run; read by its lineage."""
    run_folder: str = ""
    template_fields = (
        # Written by `make edges` from ExportCheckpoint.
        *("export_uri", "trainjob", "folder", "which", "resumable", "supersede", "best_metric"),
        *("greater_is_better", "usage", "merge_adapter"),
        # End of what `make edges` writes.
        "trial_index",
        "beside",
        "every_seconds",
        *WorkspaceOperator.template_fields,
    )

    shown_links = NO_LINKS
    operator_extra_links = (CheckpointLink(),)

    def __init__(
        self,
        *,
        # Written by `make edges` from ExportCheckpoint.
        export_uri: str,
        trainjob: str = "",
        folder: str = "",
        which: str = "",
        resumable: bool | str = True,
        supersede: bool | str = False,
        best_metric: str = "eval_loss",
        greater_is_better: bool | str = False,
        usage: dict[str, Any] | str | None = None,
        merge_adapter: bool | str = False,
        # End of what `make edges` writes.
        trial_index: int | str = -1,
        beside: str = "",
        every_seconds: float | str | timedelta = 600,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from ExportCheckpoint.
        self.export_uri = export_uri
        self.trainjob = trainjob
        self.folder = folder
        self.which = which
        self.resumable = resumable
        self.supersede = supersede
        self.best_metric = best_metric
        self.greater_is_better = greater_is_better
        self.usage = usage
        self.merge_adapter = merge_adapter
        # End of what `make edges` writes.
        self.trial_index, self.beside, self.every_seconds = trial_index, beside, every_seconds
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> Any:
        from trainwright.jobs.state.run_folder import run_folder
        from trainwright.steps.export_beside import export_beside
        from trainwright.steps.requests import ExportCheckpoint

        begin_links(self)
        of_run = self.of_run()
        request = self.asked(
            ExportCheckpoint,
            {
                # Written by `make edges` from ExportCheckpoint.
                "export_uri": self.export_uri,
                "trainjob": self.trainjob,
                "folder": self.folder,
                "which": self.which,
                "resumable": self.resumable,
                "supersede": self.supersede,
                "best_metric": self.best_metric,
                "greater_is_better": self.greater_is_better,
                "usage": self.usage,
                "merge_adapter": self.merge_adapter,
                # End of what `make edges` writes.
            },
            of_run,
            of_run.export,
        )
        run = self.step_run(context, of_run)
        if (trial := int(self.trial_index)) >= 0:
            run = run._replace(map_index=trial)
        self.run_folder = self.folder or run_folder(run.run_id, run.map_index)
        if self.beside:
            request = request.having(trainjob=request.trainjob or self.beside)
        with self.steps(context, of_run) as steps:
            if not self.beside:  # the training has ended: one export
                return self._done(context, steps(request, run))
            every = parse_number("every_seconds", self.every_seconds)
            cluster = TrainwrightHook(self.conn_id).get_conn()
            namespace = of_run.namespace or cluster.default_namespace
            return self._done(context, export_beside(cluster, self.beside, namespace, steps, request, run, every_seconds=every))

    def _done(self, context: Context, exported: dict[str, Any]) -> dict[str, Any]:
        """The result of the step. It is shown as a link, and described in the events of the task's outlets."""
        self.exported = exported
        show_checkpoint_link(self, context, exported["uri"], self.store_conn_id)
        facts = {name: exported.get(name) for name in ("uri", "digest", "step", "metrics")}
        describe_outlets(self, context, **facts)
        return exported
