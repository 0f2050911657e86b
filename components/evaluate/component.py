"""Evaluate an exported checkpoint beside its base model, in a job."""

from typing import Dict, NamedTuple  # noqa: UP035  (kfp reads these at run time)

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate(
    run_id: str,
    checkpoint_uri: str,
    checkpoint_digest: str,
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    workspace_path: str = "/workspace",
    namespace: str = "",
    sample_row: int = 0,
    max_rows: int = 0,
    env: Dict[str, str] = {},  # noqa: B006, UP006
    submission_mode: str = "",
) -> NamedTuple("Outputs", [("loss_before", float), ("loss_after", float)]):
    """Copy the export back, verify it, and measure loss on the held-out rows before and after fine-tuning.

    Args:
        run_id: Names the run.
        checkpoint_uri: Where the exported checkpoint lies, as export_checkpoint returned it.
        checkpoint_digest: Digest of its manifest; anything else there is refused.
        workspace: pvc://CLAIM or pvc://CLAIM/FOLDER, with the model and the dataset of the run.
        metrics: Losses, perplexities and the number of rows; the sample completions as metadata.
        workspace_path: Where the workspace is mounted in this step.
        namespace: Where the job is made; empty takes the one of the credentials.
        sample_row: Held-out row (from 0) whose prompt is completed before and after.
        max_rows: Measure the first rows only; 0 measures all.
        env: Variables of the program.
        submission_mode: auto, trainjob or jobset; empty takes TRAINWRIGHT_SUBMISSION_MODE, else auto: what the cluster calls for.

    Returns:
        loss_before: Mean loss of a completion's tokens under the base model.
        loss_after: The same under the fine-tuned one.
    """
    import sys
    from pathlib import Path

    from trainwright.api.errors import ApiError
    from trainwright.checkpoints import CheckpointError
    from trainwright.cluster import NoCluster, connect_for_jobs
    from trainwright.evaluation.job import evaluate_export
    from trainwright.jobs import Live, Teller, TrainJobError
    from trainwright.jobs.outcomes import exit_code_of
    from trainwright.storage import StorageError

    try:
        cluster = connect_for_jobs(mode=submission_mode)
        result = evaluate_export(
            cluster,
            checkpoint_uri,
            checkpoint_digest,
            workspace=workspace,
            workspace_path=Path(workspace_path),
            owner="kfp",
            run=run_id,
            namespace=namespace or cluster.default_namespace,
            sample_row=sample_row,
            max_rows=max_rows,
            env=env,
            tell=Teller(lambda line: print(line, flush=True)),
            logs=Live(),
        )
    except (TrainJobError, ApiError, NoCluster, CheckpointError, StorageError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(exit_code_of(error)) from None
    before, after = result["before"], result["after"]
    for name, value in (("loss_before", before["loss"]), ("loss_after", after["loss"]), ("rows", result["rows"])):
        metrics.log_metric(name, float(value))
    return float(before["loss"]), float(after["loss"])
