"""Where does training go on? The last whole checkpoint of the same dataset and model, written as a configuration file for TRL.

Runs as an init container of a training step, so that every start of a pod decides anew, from what lies on the volume then.
Beside the configuration it leaves a copy of `orderly_exit.py`, for images of the training program that do not have this package.
Usage: `python -m trainwright.checkpoints.resume_point --workspace DIR --config FILE --launcher FILE [--dataset DIR] [--model DIR]`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from trainwright.api.names import (
    DATASET_DIGEST_VARIABLE,
    MODEL_DIGEST_VARIABLE,
    RESUME_CONTINUES_VARIABLE,
    RESUME_EXPORT_VARIABLE,
    RESUME_JOB_VARIABLE,
    RESUME_VARIABLE,
)
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import latest_checkpoint
from trainwright.checkpoints.hf_trainer import incomplete_because
from trainwright.checkpoints.job_record import Writer, record_writer
from trainwright.checkpoints.origin import (
    Origin,
    begun_by,
    move_aside,
    origin_of,
    record_beginning,
    record_origin,
    recorded_origin,
)
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.checkpoints.resume_source import Source, export_at
from trainwright.storage.errors import StorageError
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.prepared import check_prepared
from trainwright.workspace.umask import apply_umask

RESTORE_SECONDS = 4 * 3600.0
"""How long the others wait for what the leader restores: a terabyte at 70 MB/s."""
_LOOK_SECONDS = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """What the job asks for. Empty: the last whole checkpoint on the volume (`auto`)."""

    resume: str = ""
    """`never`, or the URI of an export."""
    job: str = ""
    """What tells this job from every other; its restarted pods go on from its own checkpoints, whatever `resume` says."""
    export: str = ""
    """Where `auto` finds no checkpoint on the volume: the URI of an export."""
    continues: tuple[str, ...] = ()
    """Jobs that this one follows after a preemption, and whose checkpoints are as good as its own."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Wish:
        """Raises StorageError where a job is not told which one it is."""
        resume = environ.get(RESUME_VARIABLE, "")
        resume = "" if resume == "auto" else resume
        job = environ.get(RESUME_JOB_VARIABLE, "") or environ.get("TRAINJOB_NAME", "")
        if resume and not job:
            raise StorageError(
                f"{RESUME_VARIABLE} is {resume!r}, and {RESUME_JOB_VARIABLE} is empty: a restart cannot be told from a beginning"
            )
        continues = tuple(filter(None, environ.get(RESUME_CONTINUES_VARIABLE, "").split(",")))
        return cls(resume, job, environ.get(RESUME_EXPORT_VARIABLE, ""), continues)

    @property
    def source(self) -> str:
        """The export to go on from where this job has no checkpoint of its own."""
        return "" if self.resume == "never" else self.resume or self.export


def resume_point(
    workspace: Path,
    *,
    dataset: Path | None = None,
    model: Path | None = None,
    leader: bool = True,
    wish: Wish | None = None,
    writer: Writer | None = None,
    patience: float = RESTORE_SECONDS,
) -> Path | None:
    """The checkpoint below `workspace/output` to go on from, or None for a fresh start.

    The dataset and the model lie at `workspace/dataset` and `workspace/model` unless other folders are given; the leader
    records the `writer` in the output. Checkpoints of another dataset or model, and those of before a job that asks for
    another beginning, are not gone on from: the `leader` (completion index 0) moves such an output aside, and restores the
    export that is asked for. The others come to the same answer whether they look before that or after, and wait `patience`
    seconds for what is restored. Raises StorageError, CheckpointError.
    """
    wish = wish or Wish()
    output, origin = workspace / "output", origin_of(workspace, dataset=dataset, model=model)
    if leader:
        _begin(output, origin, wish)
        if writer is not None:
            record_writer(output, writer)
    found = None if _is_anothers(output, origin, wish) else _newest(output)
    source = _source(wish, origin) if found is None and wish.source else None
    if source is None:
        return found
    if leader:
        return _restored(source, output)
    return _awaited(output, origin, wish, patience)


def _source(wish: Wish, origin: Origin) -> Source | None:
    """The export to restore. What `auto` was told of may be gone, or not to be seen from here, or of another dataset."""
    if wish.resume:
        return export_at(wish.resume)
    try:
        source = export_at(wish.export)
    except NoCheckpoint as error:
        log.warning("%s", error)
        return None
    if not source.is_of(origin):
        log.info("export of another dataset or model not gone on from uri=%s", source.uri)
        return None
    return source


def _begin(output: Path, origin: Origin, wish: Wish) -> None:
    """Repeatable at every point: what was moved aside is not there any more."""
    if _is_anothers(output, origin, wish) and output.exists():
        log.info("output of another dataset, model or job moved aside to=%s", move_aside(output))
    if wish.resume and begun_by(output) != wish.job:
        record_beginning(output, wish.job)
    record_origin(output, origin)


def _is_anothers(output: Path, origin: Origin, wish: Wish) -> bool:
    if recorded_origin(output) not in (None, origin):
        return True
    return bool(wish.resume) and begun_by(output) not in (wish.job, *wish.continues)


def _newest(output: Path) -> Path | None:
    try:
        return latest_checkpoint(output).path
    except NoCheckpoint:
        return None


def _restored(source: Source, output: Path) -> Path:
    """The export as a checkpoint of this output, every file verified. One that was cut off goes on."""
    target = output / f"checkpoint-{source.manifest.step}"
    if target.exists():  # not whole, or it had been found
        log.warning("a checkpoint that is not whole moved aside to=%s", move_aside(target))
    log.info("restoring uri=%s bytes=%d to=%s", source.uri, source.manifest.size, target)
    restore_checkpoint(source.uri, target, digest=source.manifest.digest)
    with disk_errors(target):
        problem = incomplete_because(target)
    if problem:
        raise CheckpointError(f"{source.uri} cannot be gone on from: {problem}")
    return target


def _awaited(output: Path, origin: Origin, wish: Wish, patience: float) -> Path:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if not _is_anothers(output, origin, wish) and (found := _newest(output)) is not None:
            return found
        time.sleep(_LOOK_SECONDS)
    raise CheckpointError(
        f"{output}: the node with index 0 has not restored {wish.source} within {patience:g} s; do the nodes share the workspace?"
    )


def check_inputs(dataset: Path, model: Path, environ: Mapping[str, str]) -> None:
    """That the folders hold the prepared inputs whose digests the job was given, every file with its size.

    Raises PreparedMismatch naming both digests and the folder, StorageError.
    """
    if digest := environ.get(DATASET_DIGEST_VARIABLE, ""):
        check_prepared("dataset", dataset, digest)
    if digest := environ.get(MODEL_DIGEST_VARIABLE, ""):
        check_prepared("model", model, digest)


def main() -> int:
    parser = argparse.ArgumentParser(prog="trainwright.checkpoints.resume_point")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--launcher", type=Path, required=True)
    parser.add_argument("--dataset", type=Path, help="default: WORKSPACE/dataset")
    parser.add_argument("--model", type=Path, help="default: WORKSPACE/model")
    arguments = parser.parse_args()
    workspace: Path = arguments.workspace
    dataset, model = arguments.dataset or workspace / "dataset", arguments.model or workspace / "model"
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        apply_umask(os.environ)
        check_inputs(dataset, model, os.environ)
        leader = os.environ.get("JOB_COMPLETION_INDEX", "0") == "0"
        wish, writer = Wish.of(os.environ), Writer.of(os.environ)
        point = resume_point(workspace, dataset=dataset, model=model, leader=leader, wish=wish, writer=writer)
        # JSON is YAML; TRL takes what stands here as defaults of its arguments.
        content = {"resume_from_checkpoint": str(point)} if point else {}
        write_bytes(arguments.config, json.dumps(content).encode() + b"\n")
        write_bytes(arguments.launcher, resources.files("trainwright.runtimes").joinpath("orderly_exit.py").read_bytes())
    except (StorageError, CheckpointError, WorkspaceError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"resuming from {point}" if point else "starting afresh")
    return 0


if __name__ == "__main__":
    sys.exit(main())
