"""Evaluating an exported checkpoint: copied back and verified, then measured by a job beside the base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwright.checkpoints import restore_checkpoint, verify_export
from trainwright.checkpoints.errors import CheckpointError
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import Identity, Live, TrainRequest
from trainwright.jobs.happenings import OnHappenings, untold
from trainwright.jobs.run import run_to_end

RUNTIME = "causal-lm-evaluation"
FOLDER = "evaluation"
"""Folder of the workspace that holds what is evaluated and what came of it."""
RESULT = "result.json"


def evaluate_export(
    cluster: Cluster,
    checkpoint_uri: str,
    digest: str,
    *,
    workspace: str,
    workspace_path: Path,
    owner: str,
    run: str,
    namespace: str,
    sample_row: int = 0,
    max_rows: int = 0,
    env: dict[str, str] | None = None,
    tell: OnHappenings = untold,
    logs: Live | None = None,
) -> dict[str, Any]:
    """The evaluation of an export as a dict (`before`, `after`, `rows`, ...; see the program).

    `workspace` is the volume as the job sees it (`pvc://...`), `workspace_path` as this process sees it. An evaluation of
    the same export that is there already is returned. Raises CheckpointError, StorageError, and what `run_to_end` raises.
    """
    short = digest.partition(":")[2][:12]
    folder = workspace_path / FOLDER / short
    checkpoint = folder / "checkpoint"
    if not checkpoint.is_dir():
        restore_checkpoint(checkpoint_uri, checkpoint, digest=digest)
    else:
        verify_export(checkpoint_uri, digest=digest)
    inside = f"/workspace/{FOLDER}/{short}"
    arguments = ["--checkpoint", f"{inside}/checkpoint", "--out", f"{inside}/{RESULT}", "--sample-row", str(sample_row)]
    if max_rows:
        arguments += ["--max-rows", str(max_rows)]
    request = TrainRequest(runtime=RUNTIME, workspace=workspace, args=arguments, env={**(env or {})})
    run_to_end(cluster, request, Identity(owner, run, f"evaluate-{short}"), namespace, tell=tell, logs=logs)
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the evaluation job succeeded but left no result in {folder / RESULT}: {error}") from error
    return result
