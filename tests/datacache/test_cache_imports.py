"""The programs of a cache run in a separate environment, and its reader in those of trainings: neither has our dependencies."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ALONE = """
import sys
from importlib.abc import MetaPathFinder

class OnlyPyarrow(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] not in {*sys.stdlib_module_names, 'trainwright', 'pyarrow', 'numpy', '__mp_main__'}:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, OnlyPyarrow())
"""


@pytest.mark.medium
@pytest.mark.parametrize("module", ["__main__", "head", "worker", "reader"])
def test_module_of_the_cache_needs_pyarrow_alone(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{_ALONE}import trainwright.datacache.{module}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
