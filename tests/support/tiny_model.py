"""The bundled model in its tiny preset, built once for all processes of a run of the tests: building takes seven seconds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.client_environments import locked
from trainwright.quickstart.base_model import model_folder

_BUILD = """
import sys
from pathlib import Path
from trainwright.quickstart.base_model import ensure_base_model
ensure_base_model(Path(sys.argv[1]), preset="tiny")
"""


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the model, which tests only read. The last test of a process fails at its end if one has changed it."""
    own = tmp_path_factory.getbasetemp()
    models = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "models"
    models.mkdir(exist_ok=True)
    with locked(models / ".lock"):
        built = model_folder(models, preset="tiny")
        if not built.is_dir():
            subprocess.run([sys.executable, "-c", _BUILD, str(models)], check=True, timeout=300)
    with unchanged(built):
        yield built


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Fail at the end of the block if a file of the folder has changed."""
    before = digests(folder)
    yield
    assert digests(folder) == before, "a test has changed the model that all tests share"


def digests(folder: Path) -> dict[str, str]:
    """Path to digest of every file in a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
