"""Links, pipes and other surprises anywhere on a shared volume: nothing elsewhere is changed, read out or waited for.

A whole workspace with a run, prepared inputs and an export is made, some of its files and folders are replaced by whoever else can
write there, and then every step that reads it is run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_files import checkpoint_files
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import find_checkpoints
from trainwright.checkpoints.formats.whole_files import training_state
from trainwright.checkpoints.origin import recorded_initial_job, recorded_origin
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.initializers import initialize_dataset, initialize_model
from trainwright.initializers.dataset import prepare_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import prepare_model
from trainwright.jobs.code.code_package import BadCode, pack_code
from trainwright.steps.checkpoints.export import export_run_checkpoint
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri
from trainwright.workspace import prune_runs, read_run
from trainwright.workspace.layout import WorkspaceError
from trainwright.workspace.run_record import begin_run

TYPED = (StorageError, CheckpointError, WorkspaceError, InitializerError, BadCode, FileExistsError)
FEW = 20
"""Examples of the everyday test; `make fuzz` has its own number."""
CANARY = b"canary-6f1d"
KINDS = ("outside", "outside-folder", "environment", "dangling", "circle", "pipe", "socket", "empty", "folder", "zero")


def make_workspace(base: Path) -> None:
    """A workspace with everything that the steps leave on one."""
    outside = base / "outside"
    (outside / "sub").mkdir(parents=True)
    for name in ("file", "sub/file", "config.json"):
        (outside / name).write_bytes(CANARY)
    source = base / "source"
    (source / "model").mkdir(parents=True)
    (source / "rows.jsonl").write_text("".join(f'{{"text": "row {number}"}}\n' for number in range(20)))
    for name, content in (("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", b"\2\0\0\0\0\0\0\0{}")):
        (source / "model" / name).write_bytes(content)
    workspace = base / "workspace"
    begin_run(workspace, "runs/run", owner="o", run="run")
    for name, content in checkpoint_files(5).items():
        path = workspace / "runs/run/output/checkpoint-5" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    prepare_model(str(StorageUri.from_path(source / "model")), workspace)
    prepare_dataset(str(StorageUri.from_path(source / "rows.jsonl")), workspace)
    export_run_checkpoint(workspace, uri(base / "exports"), run_id="run")


def uri(path: Path) -> str:
    return str(StorageUri.from_path(path))


def exported(base: Path) -> str:
    return uri(base / "exports/run/checkpoint-5")


STEPS: dict[str, Callable[[Path], object]] = {
    "export again": lambda base: export_run_checkpoint(base / "workspace", uri(base / "exports"), run_id="run"),
    "export elsewhere": lambda base: export_run_checkpoint(base / "workspace", uri(base / "more"), run_id="run"),
    "verify": lambda base: verify_export(exported(base)),
    "restore": lambda base: restore_checkpoint(exported(base), base / "workspace/restored"),
    "prepare model": lambda base: prepare_model(uri(base / "source/model"), base / "workspace"),
    "prepare dataset": lambda base: prepare_dataset(uri(base / "source/rows.jsonl"), base / "workspace"),
    "initialize model": lambda base: initialize_model(uri(base / "source/model"), base / "workspace/model"),
    "initialize dataset": lambda base: initialize_dataset(uri(base / "source"), base / "workspace/dataset"),
    "pack code": lambda base: pack_code(str(base / "source")),
    "find": lambda base: [training_state(each.path) for each in find_checkpoints(base / "workspace/runs/run/output")],
    "records": lambda base: (
        read_run(base / "workspace/runs/run"),
        recorded_origin(base / "workspace/runs/run/output"),
        recorded_initial_job(base / "workspace/runs/run/output"),
    ),
    "prune": lambda base: prune_runs(
        base / "workspace", keep=0, current="runs/other", live=(), is_cluster_state_known=True, now=time.time() + 10**7
    ),
}


def plant(path: Path, kind: str, outside: Path) -> None:
    """Replace a file or folder as somebody else on the volume could, unless a folder above it was replaced already."""
    if os.path.realpath(path.parent) != str(path.parent) or not path.parent.is_dir():
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    targets = {
        "outside": outside / "file",
        "outside-folder": outside,
        "environment": Path("/proc/self/environ"),
        "dangling": outside / "made",
        "circle": path,
        "zero": Path("/dev/zero"),
    }
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server, short_path(path) as short:
            server.bind(short)
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.mkdir()


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Addresses of sockets are limited to 108 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def written(base: Path) -> bytes:
    """All regular files below the workspace and the exports, links not followed."""
    found = [path for place in ("workspace", "exports", "more") for path in (base / place).rglob("*")]
    return b"".join(path.read_bytes() for path in found if not path.is_symlink() and path.is_file())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that is copied for each example."""
    base = tmp_path_factory.mktemp("whole")
    make_workspace(base)
    return base


@pytest.mark.medium
@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=settings().max_examples if settings().max_examples > 100 else FEW)
@given(data=st.data())
def test_property_nothing_elsewhere_is_changed_read_out_or_waited_for(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, step: str, data: st.DataObject
) -> None:
    base = tmp_path_factory.mktemp("b")
    for place in ("outside", "source", "workspace", "exports"):
        shutil.copytree(whole / place, base / place, symlinks=True)
    paths = sorted(path.relative_to(base) for place in ("source", "workspace", "exports") for path in (base / place).rglob("*"))
    planted = data.draw(st.lists(st.tuples(st.sampled_from(paths), st.sampled_from(KINDS)), min_size=1, max_size=4))
    for path, kind in planted:
        plant(base / path, kind, base / "outside")
    before = contents(base / "outside")
    said = ""
    try:
        STEPS[step](base)
    except TYPED as error:
        said = str(error)
    assert CANARY.decode() not in said
    assert contents(base / "outside") == before
    assert CANARY not in written(base)
    shutil.rmtree(base)
