"""Evaluate an exported checkpoint and its base model, in a job."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step
from trainwright.steps.requests import EvaluateExport
from trainwright.steps.training.kfp_parameters import RUN


@step(settings=EvaluateExport, needs=RUN)
def evaluate(
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
    loss_curve: dsl.Output[dsl.HTML],
    # Written by `make edges` from EvaluateExport.
    checkpoint_uri: str,
    checkpoint_digest: str,
    image: str = "",
    env: dict = {},
    resources_per_node: dict = {},
    labels: dict = {},
    runtime: str = "causal-lm-evaluation",
    sample_row: int = 0,
    max_rows: int = 0,
    dataset_digest: str = "",
    tasks: list = [],
    retention: str = "always",
    placement: dict = {},
    limits: dict = {},
    ending: dict = {},
    logging: dict = {},
    secrets: dict = {},
    harness: dict = {},
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
    workspace: str = "",
    workspace_path: str = "",
    namespace: str = "",
    trial_index: int = -1,
    model: dsl.Input[dsl.Model] = None,
) -> NamedTuple("Outputs", [("loss_before", float), ("loss_after", float), ("evaluation", dict)]):
    """Restore an export, verify it, and measure loss before and after fine-tuning, on held-out rows if any, else on training rows.

    Args:
        run: The run, as start_run returns it: its id, its workspace, where it is done, and further settings of this step.
        run_id: Id of the run.
        checkpoint_uri: URI of the exported checkpoint.
        checkpoint_digest: Digest of its manifest; any other content is rejected.
        image: Image of the job.
        env: Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are
            rejected.
        resources_per_node: Resources of the pod: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ...,
            "requests": ...}.
        labels: Labels of the TrainJob.
        runtime: Training runtime of the evaluation.
        sample_row: Row (from 0) whose prompt is completed before and after fine-tuning.
        max_rows: Evaluate only the first rows; 0 evaluates all held-out rows.
        dataset_digest: Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the same
            rows. Empty: that of the training.
        tasks: Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows.
            See docs/tools.md.
        retention: Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.
        placement: Where the pod runs: queue, topology, nodes, volumes, annotations, patches. Its settings: queue_name,
            priority_class, topology, node_selector, tolerations, affinity, volumes, volume_mounts, annotations, runtime_patches,
            runtime_kind, submission_mode, memory_check.
        limits: When the job has failed: deadlines, stuck jobs, restarts. Its settings: queue_timeout_seconds, start_timeout_seconds,
            run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck, fail_on_divergence, restarts, preemption_budget,
            job_retries.
        ending: What happens to the job at a cancellation and without a waiting step. Its settings: on_cancel, waiter_lease_seconds,
            adopt_finished, on_changed_request, previous_jobs, tie_to_run.
        logging: Which logs of the job are shown. Its settings: logs, log_bytes.
        secrets: Names of Secrets whose keys the pod gets as variables. Its settings: store_secret, hub_secret, dataset_secret,
            model_secret, resume_secret.
        harness: How these tasks run: few_shot, task_limit. Its settings: few_shot, task_limit.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, with the prepared model and dataset of the run.
        metrics: Losses, perplexities, the metrics of the tasks and the number of rows.
        summary: Losses, a sample before and after, and what was evaluated, as Markdown.
        loss_curve: Training loss over steps, with the loss before and after, as HTML.
        workspace_path: Where the workspace is mounted in this step.
        namespace: Namespace of the job. Empty: that of the credentials.
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
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.evaluate import EvaluationJob, evaluate_export, figures_of
    from trainwright.steps.requests import StepRun
    from trainwright.steps.training.kfp_outputs import log_metrics
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.training.own_step import own_step, warn_without_exit_handler
    from trainwright.steps.training.submit import with_step_lease
    from trainwright.steps.workspace_steps import HereSteps
    from trainwright.submission import connect_for_jobs

    parameters = {
        # Written by `make edges` from EvaluateExport.
        "checkpoint_uri": checkpoint_uri,
        "checkpoint_digest": checkpoint_digest,
        "image": image,
        "env": env,
        "resources_per_node": resources_per_node,
        "labels": labels,
        "runtime": runtime,
        "sample_row": sample_row,
        "max_rows": max_rows,
        "dataset_digest": dataset_digest,
        "tasks": tasks,
        "retention": retention,
        "placement": placement,
        "limits": limits,
        "ending": ending,
        "logging": logging,
        "secrets": secrets,
        "harness": harness,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(
            run, needs_id=True, run_id=run_id, workspace=workspace, workspace_path=workspace_path, namespace=namespace
        )
        request = asked(EvaluateExport, parameters, of_run.evaluation)
        cluster = connect_for_jobs(mode=request.placement.submission_mode or of_run.submission_mode)
        own = own_step(cluster)
        if request.ending.on_cancel != "keep":
            warn_without_exit_handler(cluster, own)
        job = EvaluationJob(
            cluster,
            of_run.namespace or cluster.default_namespace,
            of_run.workspace,
            own.submitter(),
            own.workflow if request.ending.tie_to_run else None,
            event_printer=EventPrinter(write_line),
        )
        steps = HereSteps(Path(of_run.workspace_path or "/workspace"))
        place = StepRun("kfp", of_run.run_id)
        result = evaluate_export(job, with_step_lease(request), place, steps, trial_index=trial_index)
    Path(summary.path).write_text(result["summary"], "utf-8")
    Path(loss_curve.path).write_text(result["loss_curve"] or "<p>The training logged no loss.</p>", "utf-8")
    measured = {f"{name}_{when}": value for when in ("before", "after") for name, value in result[when].items()}
    log_metrics(metrics, {**measured, "rows": result["rows"]})
    return loss_of(result["before"]), loss_of(result["after"]), figures_of(result)
