"""Exports a checkpoint: pin it, store its files under keys of this attempt, confirm them, and write the manifest last.

An interrupted export has no manifest, so readers ignore it. Running it again uses what it has stored.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainwright.checkpoints import pin
from trainwright.checkpoints.derived_files import Subject, derived_files, without_base
from trainwright.checkpoints.errors import CheckpointError, DivergedCheckpoint
from trainwright.checkpoints.exported import Export, find_export_in
from trainwright.checkpoints.find import Checkpoint, Which, select_checkpoint
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.checkpoints.formats.hf_trainer import has_reached_end
from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG, training_state
from trainwright.checkpoints.job_record import recorded_writers, trained_by
from trainwright.checkpoints.manifest import HAS_ENDED, LOSS_ON, MANIFEST, MERGED, Manifest, ManifestFile
from trainwright.checkpoints.origin import SOURCES_KEY, Inputs, recorded_inputs, recorded_origin
from trainwright.checkpoints.pin import QuietCheck, pin_checkpoint
from trainwright.checkpoints.pointers import Metric, latest_export, publication_time, update_best, update_latest
from trainwright.checkpoints.registries.export_facts import run_and_job
from trainwright.checkpoints.training_history import HISTORY, LogHistory, history_beside, logged_in, sampled
from trainwright.checkpoints.training_start import STARTS_KEY, recorded_starts
from trainwright.checkpoints.upload import SMALL_AT_ONCE, LocalFile, Upload, attempt_time
from trainwright.jobs.state.progress import divergence_in
from trainwright.storage.errors import AlreadyExists, NoAccess
from trainwright.storage.open import open_store
from trainwright.storage.parallel import for_each
from trainwright.storage.plain_files import ProgressCallback, file_digest, files_below, no_progress
from trainwright.storage.store import Capabilities, Lock, Store
from trainwright.storage.transfer import check_space, disk_errors, write_bytes
from trainwright.storage.uri import StorageUri
from trainwright.workspace.run_record import FINDINGS

log = logging.getLogger(__name__)
_NOT_EXPORTED = {"training_args.bin"}
"""A pickle that is not needed to use or resume a checkpoint, and is unsafe to load."""
_RECORDS = ".trainwright-"
"""Our own files about an output folder, which may itself be the checkpoint."""
EXPORTS_LOCK = "exports"
"""One export of a run at a time, since an export may reference the files of another one."""
_AT_ONCE = 4
_DESCRIBED = ("origin", SOURCES_KEY, MERGED, FINDINGS)
"""Metadata that the card of an export shows. Others may differ between two exports of one checkpoint."""


@dataclass(frozen=True)
class ExportOptions:
    """What to export, and how it relates to the run's other exports."""

    resumable: bool = True
    """With optimizer and random states."""
    which: Which = ""
    """The checkpoint to export where no step is given: `last`, `best`, or the one that the training ended with."""
    supersede: bool = False
    """Publish also if the run has another export of this step, with other files."""
    metric: Metric = field(default_factory=Metric)
    """Chooses the best export of the run."""
    quiet_seconds: float | None = None
    """How long the checkpoint must not have changed before it is published; by default `pin.QUIET_SECONDS`."""
    small_at_once: int = SMALL_AT_ONCE
    """Small files that are sent at the same time, to a store that is not on a disk."""


@dataclass(frozen=True)
class ExportResult:
    """The URI and the manifest of an export, and whether it had existed before."""

    uri: str
    manifest: Manifest
    existed: bool
    capabilities: Capabilities
    """What the store can do."""

    @property
    def digest(self) -> str:
        return self.manifest.digest


def export_checkpoint(
    folder: Path,
    target: str | StorageUri,
    *,
    source: str,
    step: int | None = None,
    options: ExportOptions | None = None,
    metadata: dict[str, object] | None = None,
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
) -> ExportResult:
    """Export a checkpoint below `folder` to `target/checkpoint-N`: that of `step`, or the one that `options.which` selects.

    `target` is the folder of one run's exports, `source` names the run. The digests of the dataset and the model are recorded
    in the manifest's metadata as `origin`, where they were fetched from as `sources`, what the jobs of the folder began with as
    `starts`, and as `log_history` the losses that were logged outside the checkpoint (metrics.jsonl beside `folder`,
    TensorBoard's event files in it). Some small files are written for the export, see `derived_files`. `start_progress` is
    called with the total number of bytes and returns the progress callback, which threads call. If the run has an export of
    this step with the same files, that is checked, and repaired if files are missing or corrupt. One that lacks files that have
    been written since is superseded; one with other files only if the options say so. Concurrent exports of a run wait for each
    other.
    Raises NoCheckpoint, DivergedCheckpoint, CheckpointError (another export of this step, the checkpoint changed), LockLost,
    StorageError.
    """
    options = options or ExportOptions()
    parent = open_store(target)
    checkpoint = select_checkpoint(folder, step, options.which)
    with disk_errors(folder):
        history = history_beside(folder, checkpoint.path)
    _refuse_diverged(checkpoint, history)
    origin, starts, inputs = recorded_origin(folder), recorded_starts(folder), recorded_inputs(folder)
    recorded = {
        "origin": origin,
        SOURCES_KEY: dict(inputs.sources) or None,
        STARTS_KEY: starts or None,
        HISTORY: sampled(history) or None,
        LOSS_ON: _loss_on(folder, checkpoint) or None,
        HAS_ENDED: has_reached_end(checkpoint.path) or None,
    }
    metadata = {**{key: value for key, value in recorded.items() if value is not None}, **(metadata or {})}
    with disk_errors(checkpoint.path), parent.lock(EXPORTS_LOCK) as lock:
        exporting = _Exporting(parent, checkpoint, options, source, metadata, inputs, lock, start_progress)
        name, exported = exporting.run()
    update_latest(parent, name, exported.manifest)
    update_best(parent, name, exported.manifest, options.metric)
    log.info("checkpoint exported uri=%s step=%d digest=%s", exported.uri, exported.manifest.step, exported.digest)
    return exported


def _loss_on(folder: Path, checkpoint: Checkpoint) -> str:
    """Return what the job that wrote the checkpoint learned of conversations; without a record of that, the last job."""
    writers = recorded_writers(folder) or []
    known = trained_by(folder, "" if checkpoint.path == folder else checkpoint.path.name)
    return known.loss_on if known is not None else writers[-1].loss_on if writers else ""


@dataclass
class _Exporting:
    """An export that holds the lock of the run's exports."""

    parent: Store
    checkpoint: Checkpoint
    options: ExportOptions
    source: str
    metadata: dict[str, object]
    inputs: Inputs
    lock: Lock
    start_progress: Callable[[int], ProgressCallback]

    def run(self) -> tuple[str, ExportResult]:
        """Return the name of the export and the result."""
        seconds = self.options.quiet_seconds
        check = QuietCheck(self.checkpoint.path, pin.QUIET_SECONDS if seconds is None else seconds)
        with pin_checkpoint(self.checkpoint) as folder, tempfile.TemporaryDirectory(prefix="trainwright-export-") as written:
            metrics = dict(_metrics(folder, self.checkpoint.step))
            files = self._files(folder, Path(written), metrics)
            on_progress = self.start_progress(sum(file.size for file in files))
            existing = self._newest_of_step()
            if existing is not None:
                if self._is_exported_by(existing, folder, files, on_progress):  # a retry of an export that was published
                    return existing.name, ExportResult(existing.uri, existing.manifest, True, self.parent.capabilities())
                on_progress = no_progress  # already reported
            name = f"checkpoint-{self.checkpoint.step}" if existing is None else _next_name(existing.name)
            check.settle(are_ranks_known=self.checkpoint.world_size is not None)
            manifest = self._store(name, existing, files, metrics, on_progress)
            check.require()
        self.lock.require()
        self._publish(name, manifest)
        self._clear_attempts(name, manifest)
        store = self.parent.below(name)
        return name, ExportResult(str(store.uri), manifest, False, self.parent.capabilities())

    def _files(self, folder: Path, written: Path, metrics: Mapping[str, float]) -> list[LocalFile]:
        """Return the files of the export: those of the checkpoint in `folder`, and those that are written for it, to `written`."""
        paths = [path for path in files_below(folder) if path.name not in _NOT_EXPORTED and not path.name.startswith(_RECORDS)]
        if not self.options.resumable:
            paths = weights_only_files(checkpoint_format(self.checkpoint.format), folder, paths)
        if not paths:
            raise CheckpointError(f"{self.checkpoint.path} has no files to export")
        if any(path.parts[0] == MANIFEST for path in paths):
            raise CheckpointError(f"{self.checkpoint.path / MANIFEST} has the name of the export's own manifest; rename it")
        metadata = {name: self.metadata[name] for name in _DESCRIBED if name in self.metadata}
        run = run_and_job(self.source)[0] or self.parent.uri.location.rpartition("/")[2]
        subject = Subject(run, self.checkpoint.step, self.checkpoint.format, metrics, metadata)
        derived = derived_files(folder, paths, self.inputs, subject)
        for path, content in derived.items():
            write_bytes(written / path, content)
        places = {**dict.fromkeys(paths, folder), **dict.fromkeys(derived, written)}
        return [LocalFile(place, _key(path), (place / path).stat().st_size) for path, place in places.items()]

    def _newest_of_step(self) -> Export | None:
        """Return the newest export of this step: an export that supersedes another one has the next number, as `checkpoint-5.2`."""
        name, newest = f"checkpoint-{self.checkpoint.step}", None
        while (found := find_export_in(self.parent.below(name))) is not None:
            name, newest = _next_name(name), found
        return newest

    def _is_exported_by(self, existing: Export, folder: Path, files: list[LocalFile], on_progress: ProgressCallback) -> bool:
        """Whether the existing export has these files; then it is checked and repaired. Raises CheckpointError for other files."""
        digests = for_each(files, lambda file: file_digest(file.location, on_progress, within=file.folder), at_once=_AT_ONCE)
        local = {file.path: (digest, file) for file, digest in zip(files, digests, strict=True)}
        exported = {file.path: file.sha256 for file in existing.manifest.files}
        compared = {path: digest for path, (digest, _) in local.items()}
        if not self.options.supersede:
            # What an earlier version has written for the same checkpoint, or has not, makes it no other one.
            written = {file.path: file for file in files if file.folder != folder}
            same = [path for path, file in written.items() if path in exported and _is_derived_alike(existing, file)]
            compared |= {path: exported[path] for path in same}
            compared = {path: digest for path, digest in compared.items() if path in exported or path not in written}
        if compared.items() <= exported.items() and (compared == exported or not self.options.resumable):
            self._repair(existing, [local[path][1] for path in compared if local[path][0] == exported[path]])
            for file in existing.manifest.files:
                if file.path in compared and local[file.path][0] != exported[file.path] and not _is_intact(existing, file):
                    raise CheckpointError(
                        f"{existing.uri_of(file)} is missing or corrupt; publish the checkpoint anew: supersede it"
                    )
            return True
        is_extended = exported.items() <= compared.items()
        if not is_extended and not self.options.supersede:
            differing = sorted(set(compared.items()) ^ set(exported.items()))[0][0]
            raise CheckpointError(
                f"{existing.uri} is a different checkpoint of this step, of {existing.manifest.source} ({differing} differs); "
                "export to the folder of another run, or supersede it"
            )
        log.info("event=export_superseded uri=%s digest=%s", existing.uri, existing.manifest.digest)
        return False

    def _repair(self, existing: Export, local: list[LocalFile]) -> None:
        """Upload files again whose stored copy differs from the manifest."""
        folders = {file.path: file.folder for file in local}
        files = [file for file in existing.manifest.files if file.path in folders]
        intact = for_each(files, lambda file: _is_intact(existing, file), at_once=_AT_ONCE)
        for file, is_intact in zip(files, intact, strict=True):
            if not is_intact:
                self.lock.require()
                log.warning("an exported file is missing or corrupt, uploading it again uri=%s", existing.uri_of(file))
                existing.put_again(file, folders[file.path])
                if not _is_intact(existing, file):
                    raise CheckpointError(f"{existing.uri_of(file)} is corrupt, and remains so after it was uploaded again")

    def _store(
        self, name: str, existing: Export | None, files: list[LocalFile], metrics: dict[str, float], on_progress: ProgressCallback
    ) -> Manifest:
        upload = Upload(self.parent, name, self.lock, small_at_once=self.options.small_at_once)
        latest = latest_export(self.parent)
        for known in (existing, None if latest is None else find_export_in(self.parent.below(latest[0]))):
            if known is not None:
                upload.offer_export(known)
        upload.offer_attempts()
        if self.parent.uri.scheme == "file":
            check_space(self.parent.uri.path, sum(file.size for file in files if (file.path, file.size) not in upload.copies))
        stored = upload.send(files, on_progress)
        return Manifest(
            format=self.checkpoint.format,
            step=self.checkpoint.step,
            source=self.source,
            created=publication_time(self.parent),
            resumable=self.options.resumable,
            confirmed="checked" if self.parent.capabilities().checks_uploads else "read-back",
            supersedes="" if existing is None else existing.manifest.digest,
            metrics=metrics,
            metadata=self.metadata,
            files=stored,
        )

    def _publish(self, name: str, manifest: Manifest) -> None:
        store = self.parent.below(name)
        try:
            store.create(MANIFEST, manifest.text())
        except AlreadyExists as error:  # only after the lock was lost, or in a store without locks
            raise CheckpointError(f"{store.uri}: another process exported this checkpoint at the same time; try again") from error

    def _clear_attempts(self, name: str, manifest: Manifest) -> None:
        """Remove what earlier attempts at this export have stored and the manifest does not reference."""
        if not self.parent.capabilities().conditional_writes:  # another process may be about to publish them
            return
        used = {f"{name}/{file.key}" for file in manifest.files}
        left = [key for key, _ in self.parent.list_files(name) if key not in used and attempt_time(key)]
        try:
            for_each(left, self.parent.delete, at_once=_AT_ONCE)
        except NoAccess as error:  # the export is published; only its leftovers stay
            log.warning("event=attempts_left uri=%s files=%d reason=%r", self.parent.uri.join(name), len(left), str(error))


def _refuse_diverged(checkpoint: Checkpoint, history: LogHistory) -> None:
    """Raise DivergedCheckpoint if the last figures that the training had logged are not finite.

    `history` is what lies beside a checkpoint without its own, and may go on after it.
    """
    until = [entry for entry in history if not checkpoint.step or entry["step"] <= checkpoint.step]
    diverged = divergence_in([*logged_in(training_state(checkpoint.path)), *until])
    if diverged is not None:
        raise DivergedCheckpoint(
            f"{checkpoint.path} is of a training that has diverged: {diverged.describe()}; export a checkpoint from before that"
        )


def _next_name(name: str) -> str:
    stem, dot, number = name.partition(".")
    return f"{stem}.{int(number) + 1 if dot else 2}"


def _key(path: Path) -> str:
    """Return the path as a store key. It must be Unicode, because the manifest is JSON."""
    try:
        return path.as_posix().encode().decode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{path.as_posix()!r}: the name of a file to export must be valid Unicode") from error


def _is_derived_alike(existing: Export, file: LocalFile) -> bool:
    """Whether a written file of an export has the settings of the one that would be written now, apart from the name of the base."""
    if PurePosixPath(file.path).name != ADAPTER_CONFIG:  # only that file names the base
        return True
    stored = existing.read(file.path)
    return stored is None or without_base(stored) == without_base((file.folder / file.path).read_bytes())


def _is_intact(export: Export, file: ManifestFile) -> bool:
    """Compare a stored file with the manifest: by the store's own checksum, if it checks what it stores, else by reading it."""
    stored = export.inspect(file)
    if stored is None or stored.size != file.size:  # damaged without reading it
        return False
    # The store itself has computed the checksum.
    if stored.crc64nvme and stored.crc64nvme == file.crc64nvme and export.store.capabilities().checks_uploads:
        return True
    return export.checksums(file).sha256 == file.sha256


def _metrics(folder: Path, step: int) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers that training had logged for this step."""
    for entry in logged_in(training_state(folder)):
        if entry.get("step") == step:
            for name, value in entry.items():
                if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                    yield name, float(value)
