"""Checkpoints of DeepSpeed's own `save_checkpoint`: a folder `global_stepN` (or another tag), and `latest`, which names it.

Each rank writes its part with no barrier before rank 0 names the folder in `latest`. The model states say how many ranks there
were: DeepSpeed itself loads a part for each of them. They are pickles in zip files, read here without executing them.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.formats.format import numbered_step, refusals_as_reasons
from trainwright.checkpoints.formats.inert_pickle import BadPickle, Pairs, read_pickle
from trainwright.checkpoints.formats.whole_files import (
    ADAPTER_CONFIG,
    CONFIG,
    STATE,
    recorded_step,
    torch_file_error,
    zip_directory_bytes,
)
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import open_plain, read_plain

LATEST = "latest"
_MAX_TAG_BYTES = 1024
_GLOBAL_STEP = re.compile(r"global_step([0-9]+)")
_TRAINER_FILES = (STATE, "training_args.bin", CONFIG, ADAPTER_CONFIG, "scheduler.pt")
"""transformers' Trainer writes some of these before DeepSpeed writes its states."""
_OPTIMIZER = re.compile(r"(bf16_)?zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_?optim_states\.pt")
_PARTITION = re.compile(r"zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_model_states\.pt")
_MODEL = re.compile(r"mp_rank_([0-9]+)_model_states\.pt")
_MAX_PICKLE_BYTES = 128 * 1024 * 1024
_MAX_OPERATIONS = 10_000_000
_MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""100,000 tensors. Python's zipfile takes some 20 bytes of memory for each."""
_MAX_RANKS = 100_000


class DeepSpeedFormat:
    """`latest` and `global_stepN` in a numbered folder or in the output folder itself."""

    name = "deepspeed"
    expects = "global_stepN and latest"

    def step_of(self, folder: Path) -> int | None:
        step = numbered_step(folder)
        if step is None or not has_deepspeed_files(folder):
            return None
        # The Trainer saves DeepSpeed's files in its own folders, which its format checks.
        return None if any((folder / name).exists() for name in _TRAINER_FILES) else step

    def step_of_output(self, output: Path) -> int | None:
        if not has_deepspeed_files(output):
            return None
        try:
            match = _GLOBAL_STEP.fullmatch(read_tag(output) or "")
        except UnsafeFile:
            return 0  # refused, with the reason, when its completeness is checked
        return int(match[1]) if match else recorded_step(output)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return deepspeed_error(folder, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        """The partitioned model states of ZeRO-3 have no weights: these are in the optimizer's parts."""
        return path.name == LATEST or "optim_states" in path.name or "offloaded_tensors" in path.parts or is_partition(path)


def is_partition(path: PurePosixPath) -> bool:
    """Whether a file is a rank's part of partitioned model states (ZeRO-3), which contain no weights."""
    return path.name.startswith("zero_pp_rank_") and path.name.endswith("_model_states.pt")


def is_state_folder(name: str) -> bool:
    """Whether a folder name is that of DeepSpeed's states of one step."""
    return _GLOBAL_STEP.fullmatch(name) is not None


def has_deepspeed_files(folder: Path) -> bool:
    """Whether a folder has states of DeepSpeed, complete or not. Raises OSError."""
    if not folder.is_dir():
        return False
    return any(is_state_folder(path.name) and path.is_dir() for path in folder.iterdir()) or (
        (folder / LATEST).is_file() and not (folder / LATEST).is_symlink() and _names_folder(folder)
    )


def deepspeed_states(folder: Path) -> DeepSpeedStates | None:
    """Return the states that `latest` names, or None if it is missing or names none. Raises UnsafeFile, OSError."""
    tag = read_tag(folder)
    return DeepSpeedStates(folder / tag, folder) if tag else None


def deepspeed_error(folder: Path, world_size: int | None) -> str | None:
    """Return why the states that `latest` names are incomplete, naming the file, or None. Raises UnsafeFile, OSError."""
    tag = read_tag(folder)
    if tag is None:
        return f"{LATEST} is missing"
    if not tag or PurePosixPath(tag).name != tag or tag == "..":
        return f"{LATEST} does not name a folder"
    if not (folder / tag).is_dir() or (folder / tag).is_symlink():
        return f"{LATEST} names {tag!r}, which is not a folder in it"
    return DeepSpeedStates(folder / tag, folder).error(world_size)


def read_tag(folder: Path) -> str | None:
    """Return the contents of `latest`, or None without one; an empty text if it is no text. Raises UnsafeFile, OSError."""
    try:
        return read_plain(folder / LATEST, _MAX_TAG_BYTES, folder).decode().strip()
    except (FileNotFoundError, IsADirectoryError):  # no name, so no DeepSpeed checkpoint
        return None
    except UnicodeDecodeError:  # not missing, but not a name either
        return ""


def _names_folder(folder: Path) -> bool:
    try:
        tag = read_tag(folder)
    except UnsafeFile:  # a link may lead anywhere
        return False
    return bool(tag) and PurePosixPath(tag or "").name == tag and (folder / (tag or "")).is_dir()


@dataclass(frozen=True)
class Parallelism:
    """What the model states say about the run: data-parallel and model-parallel ranks, and what DeepSpeed does itself."""

    data_ranks: int
    model_ranks: int
    has_zero: bool
    gathers_weights: bool
    has_scheduler: bool

    @property
    def ranks(self) -> int:
        return self.data_ranks * self.model_ranks


class DeepSpeedStates:
    """The files of one `global_stepN` folder in `checkpoint`. Raises OSError."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.folder, self.checkpoint = folder, checkpoint
        self.names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        self.optimizer_parts = {(int(match[2]), int(match[3])) for name in self.names if (match := _OPTIMIZER.fullmatch(name))}
        self.model_parts = {(int(match[1]), int(match[2])) for name in self.names if (match := _PARTITION.fullmatch(name))}
        self.models = {int(match[1]) for name in self.names if (match := _MODEL.fullmatch(name))}

    @property
    def is_partitioned(self) -> bool:
        """Whether the weights are partitioned over the ranks (ZeRO-3): whole ones are only in the optimizer's parts."""
        return bool(self.model_parts)

    def parallelism(self) -> Parallelism | None:
        """Return what the first model states say, or None if they cannot be read. Raises UnsafeFile, OSError."""
        first = next((name for name in self.names if _MODEL.fullmatch(name) or _PARTITION.fullmatch(name)), None)
        return _read_parallelism(self.folder / first, self.checkpoint) if first else None

    def error(self, world_size: int | None) -> str | None:
        """Return which file is missing or truncated, or None. `world_size` counts if the files do not say it themselves.

        Raises UnsafeFile, OSError.
        """
        if not self.model_parts and not self.models:  # each save has model states
            return f"{self.folder.name}/mp_rank_00_model_states.pt is missing, and so are parts of partitioned model states"
        for name in self.names:
            if name.endswith(".pt") and (error := torch_file_error(self.folder / name, self.checkpoint)):
                return error
        return self._missing_part(self.parallelism(), world_size)

    def _missing_part(self, parallelism: Parallelism | None, world_size: int | None) -> str | None:
        parts = self.optimizer_parts | self.model_parts
        model_ranks = max([*(model + 1 for _, model in parts), *(model + 1 for model in self.models)])
        data_ranks = max((data + 1 for data, _ in parts), default=1)
        has_zero = bool(self.optimizer_parts)
        if parallelism is not None:
            model_ranks, data_ranks = max(model_ranks, parallelism.model_ranks), max(data_ranks, parallelism.data_ranks)
            has_zero = has_zero or parallelism.has_zero
        elif world_size is not None and has_zero:
            data_ranks = max(data_ranks, world_size // model_ranks)
        trained = f": {data_ranks * model_ranks} ranks trained"
        grid = ((data, model) for model in range(model_ranks) for data in range(data_ranks))
        prefix = "bf16_" if any(name.startswith("bf16_") for name in self.names) else ""
        for data, model in grid:
            rank = f"{self.folder.name}/{{}}zero_pp_rank_{data}_mp_rank_{model:02d}_{{}}_states.pt is missing{trained}"
            if has_zero and (data, model) not in self.optimizer_parts:  # with ZeRO each rank has its part of the optimizer
                return rank.format(prefix, "optim")
            if self.model_parts and (data, model) not in self.model_parts:  # with ZeRO-3 each rank has its part of the model
                return rank.format("", "model")
            # Otherwise only the first data-parallel ranks write the model.
            if not self.model_parts and data == 0 and model not in self.models:
                return f"{self.folder.name}/mp_rank_{model:02d}_model_states.pt is missing"
        return None


def _read_parallelism(path: Path, within: Path) -> Parallelism | None:
    try:
        with open_plain(path, within) as file:
            directory = zip_directory_bytes(file)
            if directory is None or directory > _MAX_DIRECTORY_BYTES:  # truncated, or not a file of `torch.save`
                return None
            with zipfile.ZipFile(file) as archive:
                pickles = [each for each in archive.infolist() if each.filename.endswith("/data.pkl")]
                if (
                    len(pickles) != 1
                    or pickles[0].compress_type != zipfile.ZIP_STORED
                    or pickles[0].file_size > _MAX_PICKLE_BYTES
                ):
                    return None
                # Classes of others may be named, since none is created.
                state = read_pickle(archive.read(pickles[0]), lambda _name: True, max_operations=_MAX_OPERATIONS)
    # zipfile raises these for a file that is cut off, encrypted or compressed in another way: such states are not complete.
    except (zipfile.BadZipFile, BadPickle, EOFError, NotImplementedError, RuntimeError, ValueError):
        return None
    if not isinstance(state, Pairs):  # not written by DeepSpeed
        return None
    data_ranks, model_ranks = _count(state.get("dp_world_size")), _count(state.get("mp_world_size"))
    if data_ranks is None or model_ranks is None:  # the number of ranks must be known from elsewhere
        return None
    zero = _nested(_nested(state, "ds_config"), "zero_optimization")
    gathers = isinstance(zero, Pairs) and zero.get("stage3_gather_16bit_weights_on_model_save") is True
    has_scheduler = state.get("lr_scheduler") is not None
    return Parallelism(data_ranks, model_ranks, state.get("param_shapes") is not None, gathers, has_scheduler)


def _nested(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Pairs) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value <= _MAX_RANKS else None
