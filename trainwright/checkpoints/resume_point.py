"""Finds the checkpoint to resume from, the last complete one of the same dataset and model, and writes it to a config for TRL,
with the end token of `end_token=auto`.

Runs as an init container of a training step, so that every start of a pod decides by the current contents of the volume.
It also copies `orderly_exit.py` and `report_progress.py` beside the config, for training images without this package, and
`load_weights.py` with its instructions if a new training starts from the weights of an export.
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
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path

from trainwright.api.names import (
    DATASET_DIGEST_VARIABLE,
    DATASET_SOURCE_VARIABLE,
    END_TOKEN_VARIABLE,
    MODEL_DIGEST_VARIABLE,
    MODEL_SOURCE_VARIABLE,
    RESUME_EXPORT_VARIABLE,
    RESUME_JOB_VARIABLE,
    RESUME_LAST,
    RESUME_VARIABLE,
    RESUME_WEIGHTS,
    RESUMES_FROM_VARIABLE,
    TRAINER_VARIABLE,
    TRAINING_VARIABLE,
)
from trainwright.api.termination_log import write_termination_message
from trainwright.checkpoints.end_token import template_end_token
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import find_checkpoints
from trainwright.checkpoints.formats.hf_trainer import FORMAT, has_reached_end, incomplete_reason
from trainwright.checkpoints.job_record import Writer, record_earlier, record_writer, recorded_writers
from trainwright.checkpoints.origin import (
    TRAINER,
    TRAINING,
    Origin,
    archive,
    is_same_origin,
    read_origin,
    record_initial_job,
    record_inputs,
    record_origin,
    recorded_initial_job,
    recorded_origin,
)
from trainwright.checkpoints.pointers import ResumeSource, find_export
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.checkpoints.training_start import (
    begin_training,
    describe_export_source,
    describe_start,
    is_restored,
    record_restored,
    record_start,
)
from trainwright.checkpoints.warm_start import (
    INSTRUCTIONS,
    POLL_SECONDS,
    PROGRAM,
    RESTORE_TIMEOUT_SECONDS,
    Weights,
    restore_weights,
)
from trainwright.jobs.state.usage import saved_text
from trainwright.storage.errors import StorageError
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.text.chat_templates import AUTO
from trainwright.workspace.layout import WorkspaceError, apply_umask
from trainwright.workspace.prepared import check_prepared

REPORTER = "report_progress.py"
ENDED = "may_have_ended"
"""A file beside the launcher that `report_progress.py` looks for."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumeOptions:
    """Where a job resumes from. Empty means the last complete checkpoint on the volume (`auto`)."""

    resume: str = ""
    """`never`, or the URI of an export."""
    job: str = ""
    """A unique name of the job. Its restarted pods resume from its own checkpoints, whatever `resume` is."""
    export: str = ""
    """The URI of an export to use if `auto` finds no checkpoint on the volume."""
    resumes_from: tuple[str, ...] = ()
    """Preempted jobs that this one continues; their checkpoints count as its own."""
    weights: str = ""
    """The URI of an export whose weights a new training starts from, if `auto` finds no checkpoint."""
    trainer: str = ""
    """The builtin trainer that the job runs; empty for another program."""
    training: str = ""
    """The digest of what the job trains; empty if it is not known."""
    takes_any: bool = False
    """Whether `auto` takes the last checkpoint whatever request has written it, and whether or not its training had steps left."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The URIs of `dataset` and `model` in the request of the job."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ResumeOptions:
        """Read the options of a pod. Raises StorageError if `resume` is set without the name of the job."""
        resume = environ.get(RESUME_VARIABLE, "")
        takes_any = resume == RESUME_LAST
        resume = "" if resume in ("auto", RESUME_LAST) else resume
        job = environ.get(RESUME_JOB_VARIABLE, "") or environ.get("TRAINJOB_NAME", "")
        if resume and not job:
            raise StorageError(
                f"{RESUME_VARIABLE} is {resume!r}, but {RESUME_JOB_VARIABLE} is empty, so a restart cannot be recognized"
            )
        weights = resume.removeprefix(RESUME_WEIGHTS) if resume.startswith(RESUME_WEIGHTS) else ""
        resumes_from = tuple(filter(None, environ.get(RESUMES_FROM_VARIABLE, "").split(",")))
        export, trainer = environ.get(RESUME_EXPORT_VARIABLE, ""), environ.get(TRAINER_VARIABLE, "")
        named = {"dataset": environ.get(DATASET_SOURCE_VARIABLE), "model": environ.get(MODEL_SOURCE_VARIABLE)}
        sources = {kind: uri for kind, uri in named.items() if uri}
        training = environ.get(TRAINING_VARIABLE, "")
        return cls("" if weights else resume, job, export, resumes_from, weights, trainer, training, takes_any, sources)

    @property
    def source(self) -> str:
        """The URI of the export to resume from if this job has no checkpoint, or an empty string."""
        return "" if self.resume == "never" else self.resume or self.export


def resume_point(
    workspace: Path,
    *,
    dataset: Path | None = None,
    model: Path | None = None,
    leader: bool = True,
    options: ResumeOptions | None = None,
    writer: Writer | None = None,
    timeout: float = RESTORE_TIMEOUT_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Path | None:
    """Return the checkpoint below `workspace/output` to resume from, or None to start from scratch.

    The dataset and the model default to `workspace/dataset` and `workspace/model`. The `leader` (completion index 0) records
    the `writer` in the output, archives an output that belongs to another dataset, model, trainer, training or job, and restores the
    requested export. Other nodes reach the same result whether they look before or after that, and wait up to `timeout` seconds for
    the restore, which they look for every `poll_seconds`.

    A checkpoint that has reached the end of its training counts only for a restarted pod of the job that wrote it, and if there is
    no other: nothing would be trained, or one step too many. Raises StorageError, CheckpointError.
    """
    options = options or ResumeOptions()
    output, origin = workspace / "output", read_origin(workspace, dataset=dataset, model=model)
    origin |= {name: value for name, value in ((TRAINER, options.trainer), (TRAINING, options.training)) if value}
    is_restart = _is_restart(output, writer)
    if leader:
        _initialize_output(output, origin, options)
        if not options.takes_any:
            _set_ended_aside(output, is_restart=is_restart)
        folders = {"dataset": dataset or workspace / "dataset", "model": model or workspace / "model"}
        record_inputs(output, **folders, given=options.sources)
        if writer is not None:
            complete = find_checkpoints(output, formats=(FORMAT,), use_record=False) if writer.world_size is not None else []
            record_writer(output, writer, [each.path.name for each in complete if not each.incomplete])
    if _belongs_to_another(output, origin, options):
        found = None
    else:
        found = next(reversed(_complete(output)), None) if options.takes_any else _newest(output, is_restart=is_restart)
    source = _source(options, origin) if found is None and options.source else None
    if source is None:  # a checkpoint of the volume, or a new training
        return found
    if leader:  # only one node restores; the others wait for it
        return _restore(source, output)
    return _wait_for_restore(output, origin, options, timeout, poll_seconds)


def _source(options: ResumeOptions, origin: Origin) -> ResumeSource | None:
    """Return the export to restore, or None. An export for `auto` may be missing or belong to another dataset or model."""
    if options.resume:
        source = find_export(options.resume)
        if source.trainer and options.trainer and source.trainer != options.trainer:
            raise CheckpointError(
                f"cannot resume from {source.uri}: it is a checkpoint of {source.trainer}, and {options.trainer} would go on with its "
                "steps and its optimizer; start a new training, with an export of all weights or a merged one as model_uri"
            )
        return source
    try:
        source = find_export(options.export)
    except NoCheckpoint as error:  # `auto` may start from nothing
        log.warning("%s", error)
        return None
    if not source.is_of(origin):  # `auto` resumes only what it would train itself
        log.info("export of another dataset, model, trainer or request ignored uri=%s", source.uri)
        return None
    if source.has_ended:  # no step would be left
        log.warning("export that has reached the end of its training ignored uri=%s", source.uri)
        return None
    return source


def _initialize_output(output: Path, origin: Origin, options: ResumeOptions) -> None:
    """Archive an unrelated output and record this job. Idempotent: an archived output does not exist any more."""
    if _belongs_to_another(output, origin, options) and output.exists():
        log.warning("output of another dataset, model, trainer, request or job archived to=%s", archive(output))
    if options.resume and recorded_initial_job(output) != options.job:
        record_initial_job(output, options.job)
    record_origin(output, origin)


def _belongs_to_another(output: Path, origin: Origin, options: ResumeOptions) -> bool:
    recorded = recorded_origin(output)
    if options.takes_any:
        origin = {name: value for name, value in origin.items() if name != TRAINING}
    if recorded is not None and not is_same_origin(recorded, origin):  # other data, another model or trainer
        return True
    return bool(options.resume) and recorded_initial_job(output) not in (options.job, *options.resumes_from)


def _newest(output: Path, *, is_restart: bool = False) -> Path | None:
    """Return the newest checkpoint that transformers can resume from, with steps left to train unless a restarted pod has no other."""
    ends = {path: has_reached_end(path) for path in _complete(output)}  # the leader may just be moving one away
    unfinished, ended = ([path for path, has_ended in ends.items() if has_ended is which] for which in (False, True))
    return next(iter((unfinished or (ended if is_restart else []))[::-1]), None)


def _restored(output: Path) -> Path | None:
    """Return the checkpoint that the leader has restored, as the request says, whether or not steps are left."""
    return next((path for path in reversed(_complete(output)) if is_restored(output, path.name)), None)


def _complete(output: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first.

    The recorded number of ranks is not used: nodes would disagree that look before and after the leader records the job.
    """
    return [each.path for each in find_checkpoints(output, formats=(FORMAT,), use_record=False) if not each.incomplete]


def _set_ended_aside(output: Path, *, is_restart: bool) -> None:
    """Archive the checkpoints that have reached the end of their training, but for a restarted pod that has no other."""
    complete = _complete(output)
    ended = [path for path in complete if has_reached_end(path)]
    if is_restart and len(ended) == len(complete):  # a restarted pod has no other checkpoint
        return
    for path in ended:
        log.warning("checkpoint that has reached the end of its training archived to=%s", archive(path))


def _is_restart(output: Path, writer: Writer | None) -> bool:
    """Whether an earlier pod of this job has begun in the output, as far as its record says."""
    writers = recorded_writers(output) if writer is not None else None
    if not writers or writer is None:  # no job is recorded
        return False
    return (writers[-1].name, writers[-1].uid) == (writer.name, writer.uid)


def _restore(source: ResumeSource, output: Path) -> Path:
    """Restore the export as a checkpoint of this output and verify it. Resumes an interrupted restore."""
    target = output / f"checkpoint-{source.manifest.step}"
    if target.exists():  # incomplete, otherwise it would have been found
        log.warning("incomplete checkpoint archived to=%s", archive(target))
    record_earlier(output, target.name)  # it was written by another job, perhaps with another number of ranks
    record_restored(output, target.name, describe_export_source(source.uri, source.manifest))
    log.info("restoring uri=%s bytes=%d to=%s", source.uri, source.manifest.size, target)
    restore_checkpoint(source.uri, target, digest=source.manifest.digest)
    with disk_errors(target):
        reason = incomplete_reason(target)
    if reason:
        raise CheckpointError(f"cannot resume from {source.uri}: {reason}")
    return target


def _wait_for_restore(output: Path, origin: Origin, options: ResumeOptions, timeout: float, poll_seconds: float) -> Path:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not _belongs_to_another(output, origin, options) and (found := _newest(output) or _restored(output)) is not None:
            return found
        time.sleep(poll_seconds)
    raise CheckpointError(
        f"{output}: the node with index 0 has not restored {options.source} within {timeout:g} s; "
        "check that all nodes mount the same workspace"
    )


def check_inputs(dataset: Path, model: Path, environ: Mapping[str, str]) -> None:
    """Check that the folders contain the prepared inputs with the job's digests, and that all files have the right size.

    Raises PreparedMismatch, which names both digests and the folder, StorageError.
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
        options, writer = ResumeOptions.from_environment(os.environ), Writer.from_environment(os.environ)
        point = resume_point(workspace, dataset=dataset, model=model, leader=leader, options=options, writer=writer)
        # JSON is valid YAML. TRL uses the values as defaults of its arguments.
        content = {"resume_from_checkpoint": str(point)} if point else {}
        if os.environ.get(END_TOKEN_VARIABLE) == AUTO and (token := template_end_token(dataset, model)):
            content["eos_token"] = token
        write_bytes(arguments.config, json.dumps(content, ensure_ascii=False).encode() + b"\n")
        weights = None
        if point is None and options.weights:
            weights = restore_weights(options.weights, workspace, model, job=options.job, leader=leader)
        has_ended = point is not None and has_reached_end(point) is True and not is_restored(workspace / "output", point.name)
        _write_programs(arguments.launcher, weights, may_have_ended=has_ended)
        start = str(weights) if weights is not None else describe_start(workspace / "output", point, writer)
        if leader:
            _tell_start(workspace / "output", start, writer, point)
    except (StorageError, CheckpointError, WorkspaceError) as error:  # the init container fails with the reason
        print(error, file=sys.stderr)
        return 1
    print(f"{'starting' if point is None else 'resuming'} from {start}")
    return 0


def _tell_start(output: Path, start: str, writer: Writer | None, point: Path | None) -> None:
    """Tell those who wait for the job, by the status of this pod, what it starts from, and what its first pods started from."""
    first = record_start(output, writer, start) if writer is not None else start
    restored = point is not None and is_restored(output, point.name)
    saved = saved_text(begin_training(output, point, time.time(), is_restored=restored))
    began = "" if first == start else f"; the job began with {first}"
    write_termination_message(f"{start}{began}{saved}")


def _write_programs(launcher: Path, weights: Weights | None, *, may_have_ended: bool) -> None:
    """Write the launcher, and the programs that it runs to report progress and load weights; what was left is replaced.

    With `may_have_ended` a training may find no step left, because an earlier pod of its job has trained all.
    """
    programs = resources.files("trainwright.runtimes")
    ended = launcher.with_name(ENDED)
    if may_have_ended:
        write_bytes(ended, b"")
    else:
        with disk_errors(ended):
            ended.unlink(missing_ok=True)
    instructions = launcher.with_name(INSTRUCTIONS)
    if weights is None:
        with disk_errors(instructions):
            instructions.unlink(missing_ok=True)
    else:
        write_bytes(launcher.with_name(PROGRAM), programs.joinpath(PROGRAM).read_bytes())
        write_bytes(instructions, json.dumps(asdict(weights)).encode() + b"\n")
    write_bytes(launcher.with_name(REPORTER), programs.joinpath(REPORTER).read_bytes())
    write_bytes(launcher, programs.joinpath("orderly_exit.py").read_bytes())


if __name__ == "__main__":
    sys.exit(main())
