"""Evaluate an exported checkpoint and its base model, in a job."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainwright.operators import cancellation
from trainwright.operators.errors import fail_fast
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.credentials import step_credentials
from trainwright.operators.values.literal_secrets import reject_literal_secrets
from trainwright.operators.values.settings import EVALUATION_SETTINGS, step_fields
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class EvaluateOperator(WorkspaceOperator):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    :param checkpoint_uri: URI of the exported checkpoint.
    :param checkpoint_digest: Digest of its manifest; any other content is rejected.
    :param runtime: Training runtime of the evaluation.
    :param sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
    :param max_rows: Evaluate only the first rows; 0 evaluates all held-out rows.
    :param dataset_digest: Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the
        same rows. Empty: that of the training.
    :param tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows.
        See docs/tools.md.
    :param few_shot: Examples in each prompt of a task; -1: as the task says.
    :param task_limit: Maximum number of examples of each task; 0: all.
    :param retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
    :param more: Further parameters by name, as StartRunOperator returns them for this task.
    :param trial_index: number of the trial of a sweep, as PickTrialOperator returns it; -1 outside of sweeps.
    :param image: Image of the job's main container.
    :param env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials
        are rejected.
    :param resources_per_node: Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ...,
        "requests": ...}.
    :param labels: Labels of the TrainJob.
    :param annotations: Annotations of the TrainJob.
    :param queue_name: Kueue LocalQueue: the job starts when the queue admits it.
    :param priority_class: Kueue WorkloadPriorityClass; requires queue_name.
    :param topology: required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.
    :param node_selector: Node selector of the training pods; does not apply to initializers.
    :param tolerations: Tolerations of the training pods, in addition to the runtime's.
    :param affinity: Node and pod affinity of the training pods.
    :param queue_timeout_seconds: Maximum seconds that the job may be queued or suspended. 0: no limit.
    :param start_timeout_seconds: Maximum seconds until all pods of the training have started; time of initializers does not count.
        0: no limit.
    :param run_timeout_seconds: Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty or
        -1: that of the manifest, else a week. 0: no limit.
    :param logs: Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none.
    :param log_bytes: Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends.
    :param on_cancel: What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or
        keep it.
    :param waiter_lease_seconds: Seconds after which a job whose waiting step is gone may be suspended, by a controller of
        Trainwright or a later step of its run; at least 30. 0: never.
    :param hub_secret: Secret with the key HF_TOKEN, for datasets, models and the training program.
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
    :return: the evaluation: before and after (loss, perplexity, TASK/METRIC; training_loss ... where no rows are held out), rows,
        held_out, sample, summary (Markdown), loss_curve (its path in the worker, empty without one there), evaluation (figures for
        PromoteModelOperator).
    """

    template_fields = (
        *step_fields("EvaluateExport"),
        "more",
        "trial_index",
        *EVALUATION_SETTINGS,
        *WorkspaceOperator.template_fields,
    )
    template_fields_renderers = {**WorkspaceOperator.template_fields_renderers, "env": "json"}

    def __init__(
        self,
        *,
        # Written by `make edges` from EvaluateExport.
        checkpoint_uri: str,
        checkpoint_digest: str,
        runtime: str = "causal-lm-evaluation",
        sample_row: int | str = 0,
        max_rows: int | str = 0,
        dataset_digest: str = "",
        tasks: list[Any] | str | None = None,
        few_shot: int | str = -1,
        task_limit: int | str = 0,
        retention: str = "always",
        # End of what `make edges` writes.
        workspace: str,
        trial_index: int | str = -1,
        # Written by `make edges` from TrainRequest.
        image: str = "",
        env: dict[str, Any] | str | None = None,
        resources_per_node: dict[str, Any] | str | None = None,
        labels: dict[str, Any] | str | None = None,
        annotations: dict[str, Any] | str | None = None,
        queue_name: str = "",
        priority_class: str = "",
        topology: str = "",
        node_selector: dict[str, Any] | str | None = None,
        tolerations: list[Any] | str | None = None,
        affinity: dict[str, Any] | str | None = None,
        queue_timeout_seconds: int | str | timedelta | None = None,
        start_timeout_seconds: int | str | timedelta = 21600,
        run_timeout_seconds: int | str | timedelta | None = None,
        logs: str = "0",
        log_bytes: int | str = 16777216,
        on_cancel: str = "suspend",
        waiter_lease_seconds: int | str | timedelta = 1800,
        hub_secret: str = "",
        # End of what `make edges` writes.
        more: dict[str, Any] | str | None = None,
        **kwargs: Any,
    ):
        super().__init__(workspace=workspace, **kwargs)
        # Written by `make edges` from TrainRequest.
        self.image = image
        self.env = env
        self.resources_per_node = resources_per_node
        self.labels = labels
        self.annotations = annotations
        self.queue_name = queue_name
        self.priority_class = priority_class
        self.topology = topology
        self.node_selector = node_selector
        self.tolerations = tolerations
        self.affinity = affinity
        self.queue_timeout_seconds = queue_timeout_seconds
        self.start_timeout_seconds = start_timeout_seconds
        self.run_timeout_seconds = run_timeout_seconds
        self.logs = logs
        self.log_bytes = log_bytes
        self.on_cancel = on_cancel
        self.waiter_lease_seconds = waiter_lease_seconds
        self.hub_secret = hub_secret
        # End of what `make edges` writes.
        reject_literal_secrets({name: getattr(self, name) for name in EVALUATION_SETTINGS})
        # Written by `make edges` from EvaluateExport.
        self.checkpoint_uri = checkpoint_uri
        self.checkpoint_digest = checkpoint_digest
        self.runtime = runtime
        self.sample_row = sample_row
        self.max_rows = max_rows
        self.dataset_digest = dataset_digest
        self.tasks = tasks
        self.few_shot = few_shot
        self.task_limit = task_limit
        self.retention = retention
        # End of what `make edges` writes.
        self.more = more
        self.trial_index = trial_index

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.reporting.task_event_printer import TaskEventPrinter
        from trainwright.steps.evaluate import CURVE, EvaluationJob, evaluate_export, evaluation_asked, figures_of
        from trainwright.steps.requests import StepRun

        self.check_places(checkpoint_uri=self.checkpoint_uri)
        settings = {name: getattr(self, name) for name in EVALUATION_SETTINGS}
        request, of_job = evaluation_asked(vars(self), settings, self.more)
        cluster = TrainwrightHook(self.conn_id).get_conn()
        on_cancel = str(of_job.get("on_cancel") or self.on_cancel)
        identity = task_identity(context, self.run_id, on_cancel=on_cancel)
        with self.steps(context) as steps:
            job = EvaluationJob(
                cluster,
                self.namespace or cluster.default_namespace,
                self.workspace,
                of_job,
                identity.submitter,
                credentials=step_credentials(self.store_conn_id, self.hub_conn_id),
                event_printer=TaskEventPrinter(lambda line: self.log.info("%s", line)),
                on_signal=cancellation.on_signal(context, on_cancel),
            )
            run = StepRun(f"{identity.owner}/{identity.step}", identity.run, identity.map_index)
            trial = int(self.trial_index)
            result = evaluate_export(job, request, run, steps, trial_index=trial, with_curve=self.runs_in_worker)
        curve = self.path_in_worker / result["folder"] / CURVE if result["loss_curve"] else ""
        return {**result, "loss_curve": str(curve), "evaluation": figures_of(result)}
