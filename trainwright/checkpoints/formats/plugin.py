"""Formats of other packages: their errors are reported with their name, and do not look like ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeVar

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats.format import CheckpointFormat, OutputFormat, refusals_as_reasons
from trainwright.storage.errors import UnsafeFile
from trainwright.text.foreign_texts import one_line

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        except (CheckpointError, UnsafeFile, OSError):
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
