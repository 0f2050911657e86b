"""Export a complete checkpoint of a run, the last or the best; its manifest is written last, when every stored byte is confirmed."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step
from trainwright.steps.training.kfp_parameters import RUN


@step(needs=RUN)
def export_checkpoint(
    card: dsl.Output[dsl.Markdown],
    model: dsl.Output[dsl.Model],
    # Written by `make edges` from ExportCheckpoint.
    export_uri: str,
    trainjob: str = "",
    folder: str = "",
    which: str = "",
    resumable: bool = True,
    supersede: bool = False,
    best_metric: str = "eval_loss",
    greater_is_better: bool = False,
    usage: dict = {},
    merge_adapter: bool = False,
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
    workspace_path: str = "",
    trial_index: int = -1,
    by_value: bool = False,
    dataset: dsl.Input[dsl.Dataset] = None,
    base_model: dsl.Input[dsl.Model] = None,
) -> NamedTuple("Outputs", [("uri", str), ("digest", str), ("step", int), ("merged_uri", str), ("merged_digest", str)]):
    """Copy the run's last or best complete checkpoint to a store, confirm every stored byte, and write the manifest last.

    An existing export with the same files is checked, repaired and returned. An interrupted export is resumed.

    Args:
        run_id: Id of the run whose workspace folder has the checkpoint.
        export_uri: file:///path or s3://bucket/prefix for exports; each run has its own folder below it.
        trainjob: TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.
        folder: Folder of the training in the workspace, as the training returns it. Empty: that of the TrainJob.
        which: last, or best: the checkpoint with the best metric of the training (needs eval_strategy and --load_best_model_at_end,
            or --metric_for_best_model). Empty: best if the training loads the best at its end, else last.
        resumable: Whether to export optimizer and random states too, so that a training can resume from there.
        supersede: Whether to publish also if the run has another export of this step with other files.
        best_metric: Logged metric that chooses the run's best export, which best.json names.
        greater_is_better: Whether a greater best_metric is better.
        usage: What the training used, as its step returns it, for the card.
        merge_adapter: Whether to export also the model that results from merging the adapter into its base model, beside the
            adapter's exports.
        card: What is known of the export: metrics, losses, and where it comes from, as Markdown.
        model: The manifest. The weights are at the returned URI, not in this artifact, unless by_value.
        workspace_path: Where the workspace is mounted in this step.
        run: The run, as start_run returns it: its id, its workspace, and further settings of this step.
        trial_index: Number of the trial of a sweep, as pick_trial returns it; -1 outside of sweeps.
        by_value: Whether the artifact `model` is a copy of the exported files, which the launcher uploads once more, not only
            their manifest.
        dataset: What was trained on, as initialize_dataset returns it, for the lineage of the run.
        base_model: What was fine-tuned, as initialize_model returns it, for the lineage of the run.

    Returns:
        uri: URI of the exported checkpoint.
        digest: Digest of its manifest.
        step: Training step of the checkpoint.
        merged_uri: URI of the merged model, with merge_adapter; of a model that is no adapter, its own. Empty without merge_adapter.
        merged_digest: Digest of its manifest.
    """
    from pathlib import Path

    from trainwright.checkpoints.restore import restore_checkpoint
    from trainwright.steps.checkpoints.export import describe_export, manifest_text
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.requests import ExportCheckpoint, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.workspace_steps import do_step

    parameters = {
        # Written by `make edges` from ExportCheckpoint.
        "export_uri": export_uri,
        "trainjob": trainjob,
        "folder": folder,
        "which": which,
        "resumable": resumable,
        "supersede": supersede,
        "best_metric": best_metric,
        "greater_is_better": greater_is_better,
        "usage": usage,
        "merge_adapter": merge_adapter,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, needs_id=True, run_id=run_id, workspace_path=workspace_path)
        request = asked(ExportCheckpoint, parameters, of_run.export)
        place = StepRun("kfp", of_run.run_id, trial_index)
        exported = do_step(Path(of_run.workspace_path or "/workspace"), request, place, write_line)
        uri, digest, step = exported["uri"], exported["digest"], exported["step"]
        Path(card.path).write_text(describe_export(uri, digest), "utf-8")
        if by_value:
            restore_checkpoint(uri, Path(model.path), digest=digest)
        else:
            Path(model.path).write_bytes(manifest_text(uri, digest))
    model.metadata.update({"location": uri, "digest": digest, "step": step})
    for name, given in (("dataset", dataset), ("base_model", base_model)):
        if given is not None:
            model.metadata[name] = given.metadata.get("digest", "")
    write_line(f"exported {uri} ({exported['bytes']} bytes, {digest})")
    return uri, digest, step, exported.get("merged_uri", ""), exported.get("merged_digest", "")
