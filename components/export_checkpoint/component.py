"""Export the newest complete checkpoint of a run; its manifest is written last, when every stored byte is confirmed."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def export_checkpoint(
    run_id: str,
    trainjob: str,
    export_uri: str,
    model: dsl.Output[dsl.Model],
    card: dsl.Output[dsl.Markdown],
    workspace_path: str = "/workspace",
    resumable: bool = True,
    supersede: bool = False,
    best_metric: str = "eval_loss",
    greater_is_better: bool = False,
    trial_index: int = -1,
    by_value: bool = False,
    folder: str = "",
) -> NamedTuple("Outputs", [("uri", str), ("digest", str), ("step", int)]):
    """Copy the run's newest complete checkpoint to a store, confirm every stored byte, and write the manifest last.

    An existing export with the same files is checked, repaired and returned. An interrupted export is resumed.

    Args:
        run_id: Id of the run whose workspace folder has the checkpoint.
        trainjob: TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.
        export_uri: file:///path or s3://bucket/prefix for exports; each run has its own folder below it.
        model: The manifest. The weights are at the returned URI, not in this artifact, unless by_value.
        card: What is known of the export: metrics, losses, and where it comes from, as Markdown.
        workspace_path: Where the workspace is mounted in this step.
        resumable: Also export optimizer and random states, so that training can resume from the export.
        supersede: Publish also if the run has another export of this step with other files.
        best_metric: Logged metric that chooses the run's best export, which best.json names.
        greater_is_better: Whether a greater best_metric is better.
        trial_index: Number of the trial of a sweep, as pick_trial returns it; -1 outside of sweeps.
        by_value: Whether the artifact `model` is a copy of the exported files, which the launcher uploads once more, not only
            their manifest.
        folder: Folder of the training in the workspace, its output `folder`. By default that of the TrainJob.

    Returns:
        uri: URI of the exported checkpoint.
        digest: Digest of its manifest.
        step: Training step of the checkpoint.
    """
    from pathlib import Path

    from trainwright.checkpoints import ExportOptions, Metric, restore_checkpoint
    from trainwright.steps.export import describe_export, export_run_checkpoint
    from trainwright.steps.step_end import explained_end, write_line

    options = ExportOptions(resumable=resumable, supersede=supersede, metric=Metric(best_metric, greater_is_better))
    with explained_end():
        exported = export_run_checkpoint(
            Path(workspace_path),
            export_uri,
            run_id=run_id,
            trainjob=trainjob,
            map_index=trial_index,
            owner="kfp",
            folder=folder,
            options=options,
            write_progress=write_line,
        )
        Path(card.path).write_text(describe_export(exported.uri, exported.digest), "utf-8")
        if by_value:
            restore_checkpoint(exported.uri, Path(model.path), digest=exported.digest)
        else:
            Path(model.path).write_bytes(exported.manifest.text())
    model.metadata.update({"location": exported.uri, "digest": exported.digest, "step": exported.manifest.step})
    write_line(f"exported {exported.uri} ({exported.manifest.size} bytes, {exported.digest})")
    return exported.uri, exported.digest, exported.manifest.step
