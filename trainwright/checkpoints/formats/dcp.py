"""Checkpoints of torch's distributed checkpoint (DCP): `__RANK_K.distcp` by every rank, then `.metadata`, renamed into place last."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.dcp_metadata import METADATA, read_dcp_metadata
from trainwright.checkpoints.formats.folder_names import numbered_step
from trainwright.checkpoints.formats.format import refusals_as_reasons
from trainwright.checkpoints.formats.inert_pickle import BadPickle
from trainwright.checkpoints.formats.json_files import recorded_step
from trainwright.storage.plain_files import open_plain

_SHARD = re.compile(r"__([0-9]+)_[0-9]+\.distcp")
_RANK_METADATA = re.compile(r"__([0-9]+)\.metadata")


class DcpFormat:
    """A folder with `.metadata`. Weights and optimizer states may share its files, so no file is training state only."""

    name = "torch-dcp"
    expects = "__R_K.distcp and .metadata"

    def step_of(self, folder: Path) -> int | None:
        step = numbered_step(folder)
        return step if step is not None and has_dcp_files(folder) else None

    def step_of_output(self, output: Path) -> int | None:
        return recorded_step(output) if has_dcp_files(output) else None

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return dcp_error(folder, folder, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        return False


def has_dcp_files(folder: Path) -> bool:
    """Whether a folder has files of DCP, complete or not. Raises OSError."""
    return folder.is_dir() and any(
        each.name == METADATA or _SHARD.fullmatch(each.name) or _RANK_METADATA.fullmatch(each.name) for each in folder.iterdir()
    )


def dcp_error(folder: Path, checkpoint: Path, world_size: int | None = None) -> str | None:
    """Return why a DCP folder in `checkpoint` is incomplete, naming the file, or None. Raises UnsafeFile, OSError.

    Without collectives there is one `__RANK.metadata` for each rank; only these are counted against `world_size`.
    """
    prefix = "" if folder == checkpoint else f"{folder.relative_to(checkpoint).as_posix()}/"
    names = {each.name for each in folder.iterdir()}
    metadata: Iterable[str]
    if METADATA in names or not any(_RANK_METADATA.fullmatch(name) for name in names):
        metadata = [METADATA]
    else:
        matches = [_RANK_METADATA.fullmatch(name) or _SHARD.fullmatch(name) for name in names]
        ranks = max(int(match[1]) + 1 for match in matches if match)
        metadata = (f"__{rank}.metadata" for rank in range(max(world_size or 0, ranks)))
    for name in metadata:
        if error := _metadata_error(folder, name, checkpoint, prefix):
            return error
    if temporary := sorted(name for name in names if name.endswith(".metadata.tmp")):
        return f"{prefix}{temporary[0]} exists, so it is still being written"
    return None


def dcp_ranks(folder: Path, checkpoint: Path) -> int:
    """Return the least number of ranks that can have written a complete DCP folder. Raises UnsafeFile, OSError."""
    try:
        sizes = read_dcp_metadata(folder / METADATA, checkpoint).sizes
    except (BadPickle, FileNotFoundError):
        return 0
    return max((int(match[1]) + 1 for name in sizes if (match := _SHARD.fullmatch(name))), default=0)


def _metadata_error(folder: Path, name: str, checkpoint: Path, prefix: str) -> str | None:
    try:
        sizes = read_dcp_metadata(folder / name, checkpoint).sizes
    except (FileNotFoundError, IsADirectoryError):
        return f"{prefix}{name} is missing"
    except BadPickle as error:
        return f"{prefix}{name} is not accepted: {error}"
    for shard, needed in sorted(sizes.items()):
        try:
            with open_plain(folder / shard, checkpoint) as file:
                size = os.fstat(file.fileno()).st_size
        except (FileNotFoundError, IsADirectoryError):
            return f"{prefix}{shard} is missing"
        if size < needed:
            return f"{prefix}{shard} is truncated: it has {size} bytes, but {name} lists {needed}"
    return None
