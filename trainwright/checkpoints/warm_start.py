"""Restores only the weights of an export, from which a new training starts with a fresh optimizer and scheduler at step 0.

The weights are in a folder of their own in the workspace, so that they never count as a checkpoint of the run. A record beside them
is written last: the other nodes and restarted pods use what it names, even if the URI leads to another export by then.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats import checkpoint_format
from trainwright.checkpoints.formats.foreign_settings import foreign_settings_error
from trainwright.checkpoints.formats.hf_trainer import FORMAT
from trainwright.checkpoints.formats.whole_files import ADAPTER, ADAPTER_CONFIG, CONFIG, INDEX, SINGLE, STATE, weights_error
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.checkpoints.pointers import ResumeSource, find_export
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.receipt import read_receipt

WEIGHTS_FOLDER = "weights"
"""In the run's folder, beside `output`."""
PROGRAM, INSTRUCTIONS = "load_weights.py", "load_weights.json"
"""What the training container runs to load the weights, and from where; both are beside the launcher."""
RESTORE_TIMEOUT_SECONDS = 4 * 3600.0
"""How long other nodes wait for the leader to restore an export: a terabyte at 70 MB/s."""
POLL_SECONDS = 1.0
"""How often they look for it."""
_RECORD = "source.json"
_MAX_BYTES = 16 * 1024 * 1024
FORMATS = (FORMAT, "model")
_OF_THE_OTHER_RUN = (STATE, "training_args.bin")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weights:
    """Restored weights: their folder, the export that they come from, its digest and step, and whether they are an adapter."""

    folder: str
    uri: str
    digest: str
    step: int
    kind: Literal["adapter", "model"]

    def __str__(self) -> str:
        return f"the weights of the export {self.uri} ({self.kind}, step {self.step})"


def restore_weights(
    uri: str,
    workspace: Path,
    model: Path,
    *,
    job: str,
    leader: bool = True,
    timeout: float = RESTORE_TIMEOUT_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Weights:
    """Restore the weights of the export at `uri`, or of the latest one of the run there, once for each `job`.

    The `leader` fetches and verifies them; other nodes wait up to `timeout` seconds for it, and look every `poll_seconds`. `model`
    is the folder of the prepared base model, which they must fit. Raises NoCheckpoint, CheckpointError, StorageError.
    """
    folder = workspace / WEIGHTS_FOLDER
    if not leader:  # one node fetches them
        return _wait_for_weights(folder, uri, job, timeout, poll_seconds)
    if (known := _recorded(folder, uri, job)) is not None:  # restored before a restart
        return known
    source = find_export(uri)
    manifest = source.manifest
    files = weights_files(source)
    kind = _kind_of(source, {file.path for file in files})
    target = folder / manifest.digest.removeprefix("sha256:")[:16]
    if kind == "adapter":
        _check_same_base(source, model)
    _remove_others(folder, target)
    log.info("restoring weights uri=%s bytes=%d to=%s", source.uri, sum(file.size for file in files), target)
    _restore(source, target, files)
    if reason := weights_error(target) or foreign_settings_error(target):
        raise CheckpointError(f"cannot start from the weights of {source.uri}: {reason}")
    if kind == "model":
        _check_same_architecture(source, target, model)
    weights = Weights(str(target), source.uri, manifest.digest, manifest.step, kind)
    write_bytes(folder / _RECORD, json.dumps({"requested": uri, "job": job, "weights": asdict(weights)}).encode())
    return weights


def weights_files(source: ResumeSource, formats: Sequence[str] = FORMATS) -> tuple[ManifestFile, ...]:
    """Return the files of an export without the state of its training. Raises CheckpointError for a format that cannot be loaded."""
    manifest: Manifest = source.manifest
    if manifest.format not in formats:
        raise CheckpointError(
            f"cannot start from the weights of {source.uri}: its format is {manifest.format}, and a new training loads weights of "
            f"{' and '.join(formats)}"
        )
    is_training_state = checkpoint_format(manifest.format).is_training_state
    kept = (file for file in manifest.files if not is_training_state(PurePosixPath(file.path)))
    return tuple(file for file in kept if file.path not in _OF_THE_OTHER_RUN)


def _kind_of(source: ResumeSource, paths: set[str]) -> Literal["adapter", "model"]:
    if {ADAPTER, ADAPTER_CONFIG} <= paths:
        return "adapter"
    if CONFIG in paths and paths & {SINGLE, INDEX}:
        return "model"
    raise CheckpointError(
        f"cannot start from the weights of {source.uri}: it has neither {ADAPTER} with {ADAPTER_CONFIG}, nor {SINGLE} or "
        f"{INDEX} with {CONFIG}"
    )


def _check_same_base(source: ResumeSource, model: Path) -> None:
    """An adapter is a difference to one base model; an export that does not record its base is not checked."""
    origin, receipt = source.manifest.metadata.get("origin"), read_receipt(model)
    exported = str(origin.get("model") or "") if isinstance(origin, dict) else ""
    if exported and receipt is not None and exported != receipt.digest:
        raise CheckpointError(
            f"cannot start from the weights of {source.uri}: the adapter was trained on the base model {exported}, but that of this "
            f"run is {receipt.digest}; use the same model_uri, or start without these weights"
        )


def _check_same_architecture(source: ResumeSource, target: Path, model: Path) -> None:
    exported, own = _config(target), _config(model)
    for name in ("model_type", "architectures"):
        if exported.get(name) and own.get(name) and exported[name] != own[name]:
            raise CheckpointError(
                f"cannot start from the weights of {source.uri}: {name} of its model is {exported[name]}, that of this run's base "
                f"model {own[name]}; use the same model_uri, or start without these weights"
            )


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_plain(folder / CONFIG, _MAX_BYTES, folder))
    except (OSError, UnsafeFile, ValueError, RecursionError):  # without a configuration nothing can be compared
        return {}
    return found if isinstance(found, dict) else {}


def _restore(source: ResumeSource, target: Path, files: tuple[ManifestFile, ...]) -> None:
    """Without a record, a folder with other contents is a damaged copy."""
    for _ in range(2):
        try:
            restore_checkpoint(source.uri, target, digest=source.manifest.digest, files=files)
            return
        except FileExistsError as error:  # a damaged copy is fetched again, once
            log.warning("damaged weights are fetched again path=%s reason=%s", target, error)
            _remove(target)
    raise CheckpointError(f"{target} cannot be replaced; remove it")


def _remove_others(folder: Path, target: Path) -> None:
    """Remove the record, and weights that an earlier job of the run has started from."""
    with disk_errors(folder):
        if not folder.is_dir():  # the first weights of the run
            return
        (folder / _RECORD).unlink(missing_ok=True)
        others = [path for path in folder.iterdir() if path != target and not path.name.startswith(".")]
    for path in others:
        _remove(path)


def _remove(path: Path) -> None:
    with disk_errors(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _recorded(folder: Path, uri: str, job: str) -> Weights | None:
    """Return the weights that this job starts from, if they are restored. A record of another job or URI does not count."""
    with disk_errors(folder), contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        record = json.loads(read_plain(folder / _RECORD, _MAX_BYTES, folder)) if (folder / _RECORD).exists() else {}
        if record.get("requested") == uri and record.get("job") == job:
            weights = Weights(**record["weights"])
            return weights if Path(weights.folder).is_dir() else None
    return None


def _wait_for_weights(folder: Path, uri: str, job: str, timeout: float, poll_seconds: float) -> Weights:
    deadline = time.monotonic() + timeout
    while True:
        if (found := _recorded(folder, uri, job)) is not None:
            return found
        if time.monotonic() >= deadline:
            raise CheckpointError(
                f"{folder}: the node with index 0 has not restored the weights of {uri} within {timeout:g} s; check that all nodes "
                "mount the same workspace"
            )
        time.sleep(poll_seconds)
