"""Evaluate an exported checkpoint beside its base model, in a job."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
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
    start_timeout_seconds: int = 0,
    run_timeout_seconds: int = 0,
    logs: str = "0",
    log_bytes: int = 16777216,
    on_cancel: str = "suspend",
    hub_secret: str = "",
    namespace: str = "",
    submission_mode: str = "",
) -> NamedTuple("Outputs", [("loss_before", float), ("loss_after", float)]):
    """Copy the export back, verify it, and measure loss before and after fine-tuning: on held-out rows, else on training rows.

    Args:
        run_id: Names the run.
        checkpoint_uri: Where the exported checkpoint lies, as export_checkpoint returned it.
        checkpoint_digest: Digest of its manifest; anything else there is refused.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, with the prepared model and dataset of the run.
        metrics: Losses, perplexities and the number of rows.
        summary: Losses, a sample before and after, and what was evaluated, as Markdown.
        loss_curve: Training loss over steps, with the loss before and after.
        workspace_path: Where the workspace is mounted in this step.
        runtime: Training runtime that measures.
        sample_row: Row (from 0) whose prompt is completed before and after.
        max_rows: Measure the first rows only; 0 measures all held-out rows.
        retention: Folders of earlier runs on the workspace that are kept: always, or keep=N of those that have ended.
        image: As in train, like all that follow.
        env: Variables of the program; literal credentials are refused.
        resources_per_node: Resources of the node that measures.
        labels: Labels of the TrainJob.
        annotations: Annotations of the TrainJob.
        queue_name: LocalQueue of Kueue.
        priority_class: WorkloadPriorityClass of that queue.
        topology: required:KEY, preferred:KEY, unconstrained or exclusive:KEY.
        node_selector: Labels of the node.
        tolerations: Tolerations of the pod.
        affinity: Affinity of the pod.
        queue_timeout_seconds: Seconds that the job may be queued. 0: no limit.
        start_timeout_seconds: Seconds until it must measure. 0: no limit.
        run_timeout_seconds: Seconds that it may run. 0: no limit.
        logs: Whose log is shown: 0, or none.
        log_bytes: Bytes of log that are shown.
        on_cancel: The job when the step is cancelled or exceeds a deadline: suspend, delete or keep.
        hub_secret: Secret with the key HF_TOKEN.
        namespace: Where the job is created; empty takes the one of the credentials.
        submission_mode: auto, trainjob or jobset; empty takes TRAINWRIGHT_SUBMISSION_MODE, else auto: what the cluster calls for.

    Returns:
        loss_before: Mean loss of the rows' tokens under the base model.
        loss_after: The same under the fine-tuned one.
    """
    parameters = dict(locals())
    import sys
    from functools import partial
    from pathlib import Path

    from pydantic import ValidationError

    from trainwright.api.errors import ApiError
    from trainwright.checkpoints import CheckpointError
    from trainwright.cluster import NoCluster, connect_for_jobs
    from trainwright.jobs import Teller, TrainJobError
    from trainwright.jobs.outcomes import exit_code_of
    from trainwright.jobs.setting_names import EVALUATION_SETTINGS
    from trainwright.steps.evaluate import evaluate_export
    from trainwright.steps.retire import retire_run
    from trainwright.storage import StorageError
    from trainwright.workspace import WorkspaceError, parse_retention

    try:
        parse_retention(retention)  # before anything is measured
        cluster = connect_for_jobs(mode=submission_mode)
        space = namespace or cluster.default_namespace
        result = evaluate_export(
            cluster,
            checkpoint_uri,
            checkpoint_digest,
            workspace=workspace,
            workspace_path=Path(workspace_path),
            owner="kfp",
            run_id=run_id,
            namespace=space,
            runtime=runtime,
            sample_row=sample_row,
            max_rows=max_rows,
            settings={name: parameters[name] for name in EVALUATION_SETTINGS},
            teller=Teller(partial(print, flush=True)),
        )
        retire_run(cluster, Path(workspace_path), run_id=run_id, namespace=space, retention=retention)
    except (
        TrainJobError,
        ApiError,
        NoCluster,
        CheckpointError,
        StorageError,
        WorkspaceError,
        ValidationError,
        ValueError,
    ) as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(exit_code_of(error)) from None
    Path(summary.path).write_text(result["summary"], "utf-8")
    Path(loss_curve.path).write_text(result["loss_curve"] or "<p>The training logged no loss.</p>", "utf-8")
    for when in ("before", "after"):
        metrics.log_metric(f"loss_{when}", float(result[when]["loss"]))
        metrics.log_metric(f"perplexity_{when}", float(result[when]["perplexity"]))
    metrics.log_metric("rows", float(result["rows"]))
    return float(result["before"]["loss"]), float(result["after"]["loss"])
