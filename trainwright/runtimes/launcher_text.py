"""The source of the launcher as it stands in a TrainJob's command, for the client that writes it and the node that recognizes it."""

from __future__ import annotations

from functools import cache
from importlib import resources

_MODULES = {"PLAIN_VALUES": "plain_values.py", "ENTRY_ERRORS": "entry_errors.py"}
"""Constants of the launcher that get the source of another module."""


@cache
def launcher_text() -> str:
    """Return the source of the launcher with the sources of the modules that it runs beside a program."""
    folder = resources.files("trainwright.runtimes")
    text = folder.joinpath("launch.py").read_text("utf-8")
    for constant, module in _MODULES.items():
        source = folder.joinpath(module).read_text("utf-8")
        text = text.replace(f'{constant} = ""', f"{constant} = {source!r}", 1)
    return text
