"""The known checkpoint formats, and which files of a checkpoint are exported without training state.

The formats are ours, then those that packages add with entry points of the group `trainwright.checkpoint_formats`. Each entry point
names a class that implements `CheckpointFormat`; it is instantiated once per process. Errors of formats of other packages are
reported with their name, and do not look like ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats.dcp import METADATA, DcpFormat, read_dcp_metadata
from trainwright.checkpoints.formats.deepspeed import DeepSpeedFormat, is_partition
from trainwright.checkpoints.formats.format import CheckpointFormat, OutputFormat, refusals_as_reasons
from trainwright.checkpoints.formats.hf_trainer import HfTrainerFormat
from trainwright.checkpoints.formats.inert_pickle import BadPickle
from trainwright.checkpoints.formats.marked import MarkedFormat
from trainwright.checkpoints.formats.model import ModelFormat, SafetensorsFormat
from trainwright.checkpoints.formats.torchtune import TorchtuneFormat
from trainwright.checkpoints.formats.whole_files import is_weights
from trainwright.storage.errors import UnsafeFile
from trainwright.text.foreign_texts import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "trainwright.checkpoint_formats"
_OWN: tuple[CheckpointFormat, ...] = (
    MarkedFormat(),
    DcpFormat(),
    DeepSpeedFormat(),
    HfTrainerFormat(),
    TorchtuneFormat(),
    SafetensorsFormat(),
    ModelFormat(),
)
"""In the order in which a folder is tried: the more specific contents first."""
_METHODS = ("step_of", "incomplete_reason", "is_training_state")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_OPTIMIZER_KEYS = ("optim", "opt", "optimizer", "optimizers", "optimizer_state", "optim_state", "optimizer_states")
_WITH_KNOWN_NAMES = ("hf-trainer", "torch-dcp", "deepspeed", "torchtune", "safetensors", "model")
"""Formats whose weights have known names. In others anything that is kept may be weights."""


def checkpoint_formats() -> tuple[CheckpointFormat, ...]:
    """Return our formats in the order in which they are tried, then those of other packages by entry point name.

    Raises CheckpointError for an entry point that cannot be used; it names the package.
    """
    return (*_OWN, *_installed())


def checkpoint_format(name: str) -> CheckpointFormat:
    """Return a format by name. Raises CheckpointError, which lists the known ones."""
    for known in _OWN:
        if known.name == name:
            return known
    for known in _installed():
        if known.name == name:
            return known
    names = ", ".join(known.name for known in checkpoint_formats())
    raise CheckpointError(f"the checkpoint format {name!r} is not known; known are: {names}")


@cache
def _installed() -> tuple[CheckpointFormat, ...]:
    from importlib.metadata import entry_points  # slow to import

    found: list[CheckpointFormat] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            made = entry.load()()
        except Exception as error:  # the code of others
            problem = one_line(f"{type(error).__name__}: {error}")
            raise CheckpointError(f"{_origin(entry)} cannot be loaded: {problem}; fix or uninstall it") from error
        missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
        if not isinstance(getattr(made, "name", None), str) or missing:
            expected = f"a `name` and the methods {', '.join(_METHODS)}"
            raise CheckpointError(f"{_origin(entry)} is not a checkpoint format: expected {expected}")
        made = guarded(made, _origin(entry))
        if any(known.name == made.name for known in (*_OWN, *found)):
            raise CheckpointError(f"{_origin(entry)} adds a checkpoint format {made.name!r}, but that name is taken")
        found.append(made)
    return tuple(found)


def _origin(entry: EntryPoint) -> str:
    package = f" of the package {entry.dist.name}" if entry.dist is not None else ""
    return f"the entry point {entry.name} = {entry.value} in {GROUP}{package}"


class PluginFormat:
    """A format of another package. Raises CheckpointError, which names it, for any exception but OSError and UnsafeFile."""

    expects = ""

    def __init__(self, wrapped: CheckpointFormat, origin: str) -> None:
        self.name, self._wrapped, self._origin = wrapped.name, wrapped, origin

    def step_of(self, folder: Path) -> int | None:
        return self._call(self._wrapped.step_of, folder)

    @refusals_as_reasons
    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return self._call(self._wrapped.incomplete_reason, folder, step, world_size)

    def is_training_state(self, path: PurePosixPath) -> bool:
        return self._call(self._wrapped.is_training_state, path)

    def _call(self, method: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except (CheckpointError, UnsafeFile, OSError):  # these say what is wrong with the files, not with the plugin
            raise
        except Exception as error:  # the code of others
            problem = one_line(f"{type(error).__name__}: {error}")
            raise CheckpointError(f"{self._origin} failed in {method.__name__} for {args[0]}: {problem}") from error


class PluginOutputFormat(PluginFormat):
    """One whose checkpoint may be the output folder itself."""

    def __init__(self, wrapped: OutputFormat, origin: str) -> None:
        super().__init__(wrapped, origin)
        self._step_of_output = wrapped.step_of_output

    def step_of_output(self, output: Path) -> int | None:
        return self._call(self._step_of_output, output)


def guarded(wrapped: CheckpointFormat, origin: str) -> CheckpointFormat:
    """Return the format with its exceptions reported under `origin`, which names the entry point and the package."""
    return PluginOutputFormat(wrapped, origin) if isinstance(wrapped, OutputFormat) else PluginFormat(wrapped, origin)


def weights_only_files(checkpoint_format: CheckpointFormat, folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Return the `paths`, relative to the checkpoint in `folder`, that are not training state.

    Raises CheckpointError if these contain no weights, as with ZeRO-3 without gathered weights, or if the weights cannot be
    separated from the optimizer states, as in a DCP folder with both; OSError.
    """
    kept = [path for path in paths if not checkpoint_format.is_training_state(PurePosixPath(path))]
    found = [path for path in kept if is_weights(PurePosixPath(path)) and not is_partition(PurePosixPath(path))]
    if not found and (checkpoint_format.name in _WITH_KNOWN_NAMES or not kept):
        raise CheckpointError(
            f"{folder}: without optimizer states there are no weights in this {checkpoint_format.name} checkpoint; with DeepSpeed "
            "ZeRO-3, set stage3_gather_16bit_weights_on_model_save, or export with the training state"
        )
    for path in kept:
        if path.name == METADATA and (key := _optimizer_key(folder / path, folder)):
            raise CheckpointError(
                f"{folder / path}: the files contain weights and optimizer states ({key}); save the model's state to a folder of "
                "its own, or export with the training state"
            )
    return kept


def _optimizer_key(metadata: Path, folder: Path) -> str:
    try:
        keys = read_dcp_metadata(metadata, folder).keys
    except BadPickle as error:
        raise CheckpointError(f"{metadata} is not accepted: {error}") from error
    return next((key for key in keys if key.split(".", 1)[0].lower() in _OPTIMIZER_KEYS), "")
