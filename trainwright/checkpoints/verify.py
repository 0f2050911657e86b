"""Verifies an export: every file in its manifest must exist with the recorded size and digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.hf_trainer import STATE, parse_state
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.storage.parallel import for_each
from trainwright.storage.plain_files import ProgressCallback, file_digest, folder_files, no_progress
from trainwright.storage.transfer import disk_errors

_AT_ONCE = 4


def verify_export(
    uri: str,
    *,
    digest: str = "",
    quick: bool = False,
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
) -> Manifest:
    """Read every file of the export at `uri` and compare it with the manifest; with `digest`, check the manifest too.

    With `quick`, sizes and the checksums that the store itself reports are compared; a file is read only if its checksum differs.
    The manifest's step is compared with the content, too. Returns the manifest.
    Raises NoCheckpoint without an export, CheckpointError with all files that differ, StorageError.
    """
    export = open_export(uri, digest)
    manifest = export.manifest
    on_progress = start_progress(manifest.size)

    def problem_of(file: ManifestFile) -> str:
        stored = export.inspect(file)
        if stored is None:
            return f"{file.path} is missing"
        if stored.size != file.size:
            return f"{file.path} has {stored.size} bytes instead of {file.size}"
        if quick and (not stored.crc64nvme or not file.crc64nvme or stored.crc64nvme == file.crc64nvme):
            on_progress(file.size)
            return ""
        if export.checksums(file, on_progress).sha256 != file.sha256:
            return f"{file.path} has a different SHA-256 than in the manifest"
        return ""

    wrong = [problem for problem in for_each(manifest.files, problem_of, at_once=_AT_ONCE) if problem]
    if wrong:
        raise CheckpointError(f"{uri} is corrupt: {'; '.join(wrong)}")
    state = export.read(STATE)
    if state is not None:
        check_step(manifest, parse_state(state), uri)
    return manifest


def check_step(manifest: Manifest, state: dict[str, object] | None, where: str) -> None:
    """Compare the manifest's step with that in the contents of `trainer_state.json`. Raises CheckpointError, which names `where`.

    Resuming, retention and `latest.json` go by the manifest's step, and training by that of the state.
    """
    found = (state or {}).get("global_step")
    if found is None:
        raise CheckpointError(f"{where} is not a checkpoint: {STATE} has no global_step")
    if found != manifest.step:
        raise CheckpointError(f"{where}: the manifest is of step {manifest.step}, but {STATE} of step {found!r}")


def folder_mismatch(folder: Path, manifest: Manifest) -> str:
    """Return how a restored copy differs from the manifest, or an empty string. Reads every file. Raises StorageError.

    A file that the manifest does not list counts too: a library that loads the folder would read it.
    """
    listed = {Path(file.path): file for file in manifest.files}
    with disk_errors(folder):
        found = folder_files(folder)
        others = sorted({*found.files, *found.refused} - set(listed))
        if others:
            return f"{others[0]} is not in the manifest"
        for path, file in listed.items():
            if path not in found.files:
                return f"{path} is missing or not a regular file"
            if (folder / path).stat().st_size != file.size or file_digest(folder / path, within=folder) != file.sha256:
                return f"{path} has a different size or SHA-256 than in the manifest"
    return ""
