"""Evaluate an exported checkpoint and its base model, in a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.groups import Ending, Harness, Limits, Logging, Placement, Secrets, check_flat_names
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.connections import step_credentials
from trainwright.operators.values.task_identity import task_identity
from trainwright.operators.workspace_operator import WorkspaceOperator, path_in_worker, runs_in_worker

if TYPE_CHECKING:
    from airflow.sdk import Context


class EvaluateOperator(WorkspaceOperator):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    :param checkpoint_uri: URI of the exported checkpoint.
    :param checkpoint_digest: Digest of its manifest; any other content is rejected.
    :param image: Image of the job.
    :param env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials
        are rejected.
    :param resources_per_node: Resources of the pod: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ...,
        "requests": ...}.
    :param labels: Labels of the TrainJob.
    :param runtime: Training runtime of the evaluation.
    :param sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
    :param max_rows: Evaluate only the first rows; 0 evaluates all held-out rows.
    :param dataset_digest: Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the
        same rows. Empty: that of the training.
    :param tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows.
        See docs/tools.md.
    :param retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
    :param placement: Where the pod runs: queue, topology, nodes, volumes, annotations, patches. Its settings: queue_name,
        priority_class, topology, node_selector, tolerations, affinity, volumes, volume_mounts, annotations, runtime_patches,
        runtime_kind, submission_mode, memory_check.
    :param limits: When the job has failed: deadlines, stuck jobs, restarts. Its settings: queue_timeout_seconds,
        start_timeout_seconds, run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck, fail_on_divergence, restarts,
        preemption_budget, job_retries.
    :param ending: What happens to the job at a cancellation and without a waiting step. Its settings: on_cancel,
        waiter_lease_seconds, adopt_finished, on_changed_request, previous_jobs, tie_to_run.
    :param logging: Which logs of the job are shown. Its settings: logs, log_bytes.
    :param secrets: Names of Secrets whose keys the pod gets as variables. Its settings: store_secret, hub_secret, dataset_secret,
        model_secret, resume_secret.
    :param harness: How these tasks run: few_shot, task_limit. Its settings: few_shot, task_limit.
    :param trial_index: number of the trial of a sweep, as PickTrialOperator returns it; -1 outside of sweeps.
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
    :return: the evaluation: before and after (loss, perplexity, TASK/METRIC; training_loss ... where no rows are held out), rows,
        held_out, sample, summary (Markdown), loss_curve (its path in the worker, empty without one there), evaluation (figures for
        PromoteModelOperator).
    """

    template_fields = (
        # Written by `make edges` from EvaluateExport.
        *("checkpoint_uri", "checkpoint_digest", "image", "env", "resources_per_node", "labels"),
        *("runtime", "sample_row", "max_rows", "dataset_digest", "tasks", "retention", "placement", "limits"),
        *("ending", "logging", "secrets", "harness"),
        # End of what `make edges` writes.
        "trial_index",
        *WorkspaceOperator.template_fields,
    )
    groups = ("placement", "limits", "ending", "logging", "secrets", "harness")
    template_fields_renderers = {**WorkspaceOperator.template_fields_renderers, "env": "json"}

    def __init__(
        self,
        *,
        # Written by `make edges` from EvaluateExport.
        checkpoint_uri: str,
        checkpoint_digest: str,
        image: str = "",
        env: dict[str, Any] | str | None = None,
        resources_per_node: dict[str, Any] | str | None = None,
        labels: dict[str, Any] | str | None = None,
        runtime: str = "causal-lm-evaluation",
        sample_row: int | str = 0,
        max_rows: int | str = 0,
        dataset_digest: str = "",
        tasks: list[Any] | str | None = None,
        retention: str = "always",
        placement: Placement | str | None = None,
        limits: Limits | str | None = None,
        ending: Ending | str | None = None,
        logging: Logging | str | None = None,
        secrets: Secrets | str | None = None,
        harness: Harness | str | None = None,
        # End of what `make edges` writes.
        trial_index: int | str = -1,
        **kwargs: Any,
    ):
        check_flat_names(self.groups, kwargs)
        super().__init__(**kwargs)
        # Written by `make edges` from EvaluateExport.
        self.checkpoint_uri = checkpoint_uri
        self.checkpoint_digest = checkpoint_digest
        self.image = image
        self.env = env
        self.resources_per_node = resources_per_node
        self.labels = labels
        self.runtime = runtime
        self.sample_row = sample_row
        self.max_rows = max_rows
        self.dataset_digest = dataset_digest
        self.tasks = tasks
        self.retention = retention
        self.placement = placement
        self.limits = limits
        self.ending = ending
        self.logging = logging
        self.secrets = secrets
        self.harness = harness
        # End of what `make edges` writes.
        self.trial_index = trial_index
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators import cancellation
        from trainwright.operators.reporting.task_events import TaskEventPrinter
        from trainwright.steps.evaluate import CURVE, EvaluationJob, evaluate_export, figures_of
        from trainwright.steps.requests import EvaluateExport, StepRun

        of_run = self.of_run()
        request = self.asked(
            EvaluateExport,
            {
                # Written by `make edges` from EvaluateExport.
                "checkpoint_uri": self.checkpoint_uri,
                "checkpoint_digest": self.checkpoint_digest,
                "image": self.image,
                "env": self.env,
                "resources_per_node": self.resources_per_node,
                "labels": self.labels,
                "runtime": self.runtime,
                "sample_row": self.sample_row,
                "max_rows": self.max_rows,
                "dataset_digest": self.dataset_digest,
                "tasks": self.tasks,
                "retention": self.retention,
                "placement": self.placement,
                "limits": self.limits,
                "ending": self.ending,
                "logging": self.logging,
                "secrets": self.secrets,
                "harness": self.harness,
                # End of what `make edges` writes.
            },
            of_run,
            of_run.evaluation,
        )
        if not of_run.workspace:
            raise ValueError(
                "workspace: required: the claim with the prepared dataset and model; or give run, of StartRunOperator"
            )
        cluster, on_cancel = TrainwrightHook(self.conn_id, request.placement.submission_mode).get_conn(), request.ending.on_cancel
        identity = task_identity(context, of_run.run_id, on_cancel=on_cancel)
        with self.steps(context, of_run) as steps:
            job = EvaluationJob(
                cluster,
                of_run.namespace or cluster.default_namespace,
                of_run.workspace,
                identity.submitter,
                credentials=step_credentials(self.store_conn_id, self.hub_of(of_run)),
                event_printer=TaskEventPrinter(lambda line: self.log.info("%s", line)),
                on_signal=cancellation.on_signal(context, on_cancel),
            )
            place = StepRun(f"{identity.owner}/{identity.step}", identity.run, identity.map_index)
            trial = int(self.trial_index)
            result = evaluate_export(job, request, place, steps, trial_index=trial, with_curve=runs_in_worker(of_run))
        curve = path_in_worker(of_run) / result["folder"] / CURVE if result["loss_curve"] else ""
        return {**result, "loss_curve": str(curve), "evaluation": figures_of(result)}
