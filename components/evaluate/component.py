"""Evaluate an exported checkpoint and its base model, in a job."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def evaluate(
    run_id: str,
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
    loss_curve: dsl.Output[dsl.HTML],
    # Written by `make edges` from EvaluateExport.
    checkpoint_uri: str,
    checkpoint_digest: str,
    runtime: str = "causal-lm-evaluation",
    sample_row: int = 0,
    max_rows: int = 0,
    dataset_digest: str = "",
    tasks: list = [],
    few_shot: int = -1,
    task_limit: int = 0,
    retention: str = "always",
    # End of what `make edges` writes.
    workspace_path: str = "/workspace",
    # Written by `make edges` from TrainRequest.
    image: str = "",
    env: dict = {},
    resources_per_node: dict = {},
    labels: dict = {},
    annotations: dict = {},
    queue_name: str = "",
    priority_class: str = "",
    topology: str = "",
    node_selector: dict = {},
    tolerations: list = [],
    affinity: dict = {},
    queue_timeout_seconds: int = 0,
    start_timeout_seconds: int = 21600,
    run_timeout_seconds: int = -1,
    logs: str = "0",
    log_bytes: int = 16777216,
    on_cancel: str = "suspend",
    waiter_lease_seconds: int = 600,
    hub_secret: str = "",
    # End of what `make edges` writes.
    more: dict = {},
    namespace: str = "",
    submission_mode: str = "",
    tie_to_run: bool = True,
    trial_index: int = -1,
    model: dsl.Input[dsl.Model] = None,
) -> NamedTuple("Outputs", [("loss_before", float), ("loss_after", float), ("evaluation", dict)]):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    Args:
        run_id: Id of the run.
        checkpoint_uri: URI of the exported checkpoint.
        checkpoint_digest: Digest of its manifest; any other content is rejected.
        runtime: Training runtime of the evaluation.
        sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
        max_rows: Evaluate only the first rows; 0 evaluates all held-out rows.
        dataset_digest: Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the same
            rows. Empty: that of the training.
        tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows.
            See docs/tools.md.
        few_shot: Examples in each prompt of a task; -1: as the task says.
        task_limit: Maximum number of examples of each task; 0: all.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, with the prepared model and dataset of the run.
        metrics: Losses, perplexities, the metrics of the tasks and the number of rows.
        summary: Losses, a sample before and after, and what was evaluated, as Markdown.
        loss_curve: Training loss over steps, with the loss before and after, as HTML.
        workspace_path: Where the workspace is mounted in this step.
        image: Image of the job's main container.
        env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are
            rejected.
        resources_per_node: Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ..., "requests":
            ...}.
        labels: Labels of the TrainJob.
        annotations: Annotations of the TrainJob.
        queue_name: Kueue LocalQueue: the job starts when the queue admits it.
        priority_class: Kueue WorkloadPriorityClass; requires queue_name.
        topology: required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.
        node_selector: Node selector of the training pods; does not apply to initializers.
        tolerations: Tolerations of the training pods, in addition to the runtime's.
        affinity: Node and pod affinity of the training pods.
        queue_timeout_seconds: Maximum seconds that the job may be queued or suspended. 0: no limit.
        start_timeout_seconds: Maximum seconds until all pods of the training have started; time of initializers does not count. 0:
            no limit.
        run_timeout_seconds: Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty or -1:
            that of the manifest, else a week. 0: no limit.
        logs: Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none.
        log_bytes: Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends.
        on_cancel: What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or keep
            it.
        waiter_lease_seconds: Seconds after which a job whose waiting step is gone may be suspended, by a controller of Trainwright
            or a later step of its run; at least 30. 0: never.
        hub_secret: Secret with the key HF_TOKEN, for datasets, models and the training program.
        more: Further parameters by name, as start_run returns them for this step.
        namespace: Namespace of the job. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.
        tie_to_run: Whether the TrainJob is deleted together with the workflow of its pipeline run, and labelled with it.
        trial_index: Number of the trial of a sweep, as pick_trial returns it; -1 outside of sweeps.
        model: The export, as export_checkpoint returns it, for the lineage of the run.

    Returns:
        loss_before: Mean loss per token with the base model, of held-out rows, or of training rows if none are held out.
        loss_after: The same with the fine-tuned model.
        evaluation: Its figures for promote_model: loss, perplexity, TASK/METRIC of each task, and what they were measured on: rows,
            held_out, and digests of rows and data. Those of training rows are training_loss, training_perplexity and
            training_rows/METRIC.
    """
    from pathlib import Path

    from trainwright.evaluation.figures import loss_of
    from trainwright.jobs import EventPrinter
    from trainwright.steps.evaluate import EvaluationJob, evaluate_export, evaluation_asked, figures_of
    from trainwright.steps.exit_handlers import warn_without_exit_handler
    from trainwright.steps.own_step import own_step
    from trainwright.steps.reported_metrics import log_metrics
    from trainwright.steps.requests import StepRun
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.steps.workspace_steps import HereSteps
    from trainwright.submission import connect_for_jobs

    parameters = {
        # Written by `make edges` from EvaluateExport.
        "checkpoint_uri": checkpoint_uri,
        "checkpoint_digest": checkpoint_digest,
        "runtime": runtime,
        "sample_row": sample_row,
        "max_rows": max_rows,
        "dataset_digest": dataset_digest,
        "tasks": tasks,
        "few_shot": few_shot,
        "task_limit": task_limit,
        "retention": retention,
        # End of what `make edges` writes.
    }
    settings = {
        # Written by `make edges` from TrainRequest.
        "image": image,
        "env": env,
        "resources_per_node": resources_per_node,
        "labels": labels,
        "annotations": annotations,
        "queue_name": queue_name,
        "priority_class": priority_class,
        "topology": topology,
        "node_selector": node_selector,
        "tolerations": tolerations,
        "affinity": affinity,
        "queue_timeout_seconds": queue_timeout_seconds,
        "start_timeout_seconds": start_timeout_seconds,
        "run_timeout_seconds": run_timeout_seconds,
        "logs": logs,
        "log_bytes": log_bytes,
        "on_cancel": on_cancel,
        "waiter_lease_seconds": waiter_lease_seconds,
        "hub_secret": hub_secret,
        # End of what `make edges` writes.
    }
    with explained_end():
        cluster = connect_for_jobs(mode=submission_mode)
        own = own_step(cluster)
        asked, of_job = evaluation_asked(parameters, settings, more)
        if of_job.get("on_cancel") != "keep":
            warn_without_exit_handler(cluster, own)
        job = EvaluationJob(
            cluster,
            namespace or cluster.default_namespace,
            workspace,
            of_job,
            own.submitter(),
            own.workflow if tie_to_run else None,
            event_printer=EventPrinter(write_line),
        )
        steps = HereSteps(Path(workspace_path))
        result = evaluate_export(job, asked, StepRun("kfp", run_id), steps, trial_index=trial_index)
    Path(summary.path).write_text(result["summary"], "utf-8")
    Path(loss_curve.path).write_text(result["loss_curve"] or "<p>The training logged no loss.</p>", "utf-8")
    measured = {f"{name}_{when}": value for when in ("before", "after") for name, value in result[when].items()}
    log_metrics(metrics, {**measured, "rows": result["rows"]})
    return loss_of(result["before"]), loss_of(result["after"]), figures_of(result)
