"""Evaluate an exported checkpoint and its base model, in a job."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def evaluate(
    run_id: str,
    checkpoint_uri: str,
    checkpoint_digest: str,
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
    loss_curve: dsl.Output[dsl.HTML],
    workspace_path: str = "/workspace",
    runtime: str = "causal-lm-evaluation",
    sample_row: int = 0,
    max_rows: int = 0,
    dataset_digest: str = "",
    tasks: list = [],
    few_shot: int = -1,
    task_limit: int = 0,
    retention: str = "always",
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
    run_timeout_seconds: int = 604800,
    logs: str = "0",
    log_bytes: int = 16777216,
    on_cancel: str = "suspend",
    waiter_lease_seconds: int = 600,
    hub_secret: str = "",
    namespace: str = "",
    submission_mode: str = "",
    tie_to_run: bool = True,
    trial_index: int = -1,
) -> NamedTuple("Outputs", [("loss_before", float), ("loss_after", float), ("evaluation", dict)]):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    Args:
        run_id: Id of the run.
        checkpoint_uri: URI of the exported checkpoint, as returned by export_checkpoint.
        checkpoint_digest: Digest of its manifest; any other content is rejected.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, with the prepared model and dataset of the run.
        metrics: Losses, perplexities, the metrics of the tasks and the number of rows.
        summary: Losses, a sample before and after, and what was evaluated, as Markdown.
        loss_curve: Training loss over steps, with the loss before and after, as HTML.
        workspace_path: Where the workspace is mounted in this step.
        runtime: Training runtime of the evaluation.
        sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
        max_rows: Evaluate only the first rows; 0 evaluates all held-out rows.
        dataset_digest: Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the same
            rows. Empty: the one that it was trained on.
        tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out
            rows. If the image has no lm-eval, it is installed first.
        few_shot: Examples in each prompt of a task; -1: as the task says.
        task_limit: Maximum number of examples of each task; 0: all.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
        image: Image of the evaluation. Empty: the runtime's.
        env: Environment variables of the evaluation; literal credentials are rejected.
        resources_per_node: Resources of the evaluation's node.
        labels: Labels of the TrainJob.
        annotations: Annotations of the TrainJob.
        queue_name: LocalQueue of Kueue.
        priority_class: Kueue WorkloadPriorityClass; requires queue_name.
        topology: required:KEY, preferred:KEY, unconstrained or exclusive:KEY.
        node_selector: Node selector of the pod.
        tolerations: Tolerations of the pod.
        affinity: Affinity of the pod.
        queue_timeout_seconds: Maximum seconds in the queue. 0: no limit.
        start_timeout_seconds: Maximum seconds until the evaluation starts. 0: no limit.
        run_timeout_seconds: Maximum seconds of the evaluation. Default: a week. 0: no limit.
        logs: Log to show: 0 (rank 0), or none.
        log_bytes: Maximum bytes of log to show.
        on_cancel: What to do with the job when the step is cancelled or exceeds a deadline: suspend, delete or keep.
        waiter_lease_seconds: Seconds after which a job whose waiting step is gone may be suspended, by a controller of
            Trainwright or a later step of its run; at least 30. 0: never.
        hub_secret: Secret with the key HF_TOKEN.
        namespace: Namespace of the job. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.
        tie_to_run: Whether the TrainJob is deleted together with the workflow of its pipeline run, and labelled with it.
        trial_index: Number of the trial of a sweep, as pick_trial returns it; -1 outside of sweeps.

    Returns:
        loss_before: Mean loss per token with the base model.
        loss_after: Mean loss per token with the fine-tuned model.
        evaluation: Its figures for promote_model: loss, perplexity, TASK/METRIC of each task, rows, held_out, and the digest of
            the data.
    """
    parameters = dict(locals())
    from pathlib import Path

    from trainwright.jobs import EventPrinter
    from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS
    from trainwright.steps.evaluate import evaluate_export, figures_of
    from trainwright.steps.exit_handlers import warn_without_exit_handler
    from trainwright.steps.own_step import own_step
    from trainwright.steps.reported_metrics import log_metrics
    from trainwright.steps.retire import retire_run
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.steps.workspace_steps import HereSteps
    from trainwright.submission import connect_for_jobs
    from trainwright.workspace import parse_retention

    with explained_end():
        parse_retention(retention)  # fail on an invalid value before the evaluation
        cluster = connect_for_jobs(mode=submission_mode)
        own = own_step(cluster)
        if on_cancel != "keep":
            warn_without_exit_handler(cluster, own)
        space = namespace or cluster.default_namespace
        result = evaluate_export(
            cluster,
            checkpoint_uri,
            checkpoint_digest,
            workspace=workspace,
            steps=HereSteps(Path(workspace_path)),
            owner="kfp",
            run_id=run_id,
            namespace=space,
            map_index=trial_index,
            runtime=runtime,
            sample_row=sample_row,
            max_rows=max_rows,
            dataset_digest=dataset_digest,
            tasks=tasks,
            few_shot=few_shot,
            task_limit=task_limit,
            settings={name: parameters[name] for name in EVALUATION_SETTINGS},
            event_printer=EventPrinter(write_line),
            submitter=own.submitter(),
            workflow=own.workflow if tie_to_run else None,
        )
        retire_run(cluster, Path(workspace_path), run_id=run_id, namespace=space, retention=retention, map_index=trial_index)
        if trial_index >= 0:  # the folder that the preparation of the data has recorded is empty
            retire_run(cluster, Path(workspace_path), run_id=run_id, namespace=space)
    Path(summary.path).write_text(result["summary"], "utf-8")
    Path(loss_curve.path).write_text(result["loss_curve"] or "<p>The training logged no loss.</p>", "utf-8")
    measured = {f"{name}_{when}": value for when in ("before", "after") for name, value in result[when].items()}
    log_metrics(metrics, {**measured, "rows": result["rows"]})
    return float(result["before"]["loss"]), float(result["after"]["loss"]), figures_of(result)
