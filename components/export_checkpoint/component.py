"""Export the newest whole checkpoint of a training job, verified, with a manifest written last."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def export_checkpoint(
    run_id: str,
    trainjob: str,
    export_uri: str,
    model: dsl.Output[dsl.Model],
    workspace_path: str = "/workspace",
    resumable: bool = True,
) -> NamedTuple("Outputs", [("uri", str), ("digest", str), ("step", int)]):
    """Copy the run's newest whole checkpoint to a store, verify what arrived, and write its manifest last.

    An export that is there already with the same files is verified and returned; one that was cut off goes on.

    Args:
        run_id: The run whose folder of the workspace holds the checkpoint.
        trainjob: The TrainJob that made it; a checkpoint of another one is refused.
        export_uri: file:///path or s3://bucket/prefix that holds exports; the run gets a folder of its own below it.
        model: The manifest. The weights are at the returned URI, not in this artifact.
        workspace_path: Where the workspace is mounted in this step.
        resumable: Take optimizer and random states along, so that training can go on from the export.

    Returns:
        uri: Where the exported checkpoint lies.
        digest: Digest of its manifest.
        step: Training step of the checkpoint.
    """
    from pathlib import Path

    from trainwright.checkpoints import CheckpointError
    from trainwright.steps.export import export_run_checkpoint
    from trainwright.storage import StorageError
    from trainwright.workspace import WorkspaceError

    try:
        exported = export_run_checkpoint(Path(workspace_path), export_uri, run_id=run_id, trainjob=trainjob, resumable=resumable)
    except (CheckpointError, StorageError, WorkspaceError) as error:
        raise SystemExit(str(error)) from None
    Path(model.path).write_bytes(exported.manifest.text())
    model.metadata.update({"location": exported.uri, "digest": exported.digest, "step": exported.manifest.step})
    print(f"exported {exported.uri} ({exported.manifest.size} bytes, {exported.digest})", flush=True)
    return exported.uri, exported.digest, exported.manifest.step
