"""Training goes on from the last whole checkpoint of the same dataset and model, and from no other."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prepared_folders import prepare

from trainwright.checkpoints.resume_point import resume_point
from trainwright.initializers.receipt import NAME
from trainwright.storage.errors import StorageError


@pytest.fixture
def workspace(output: Path) -> Path:
    prepare(output.parent, "dataset", "1")
    prepare(output.parent, "model", "1")
    return output.parent


def test_without_checkpoints_training_starts_afresh(workspace: Path) -> None:
    assert resume_point(workspace) is None
    assert resume_point(workspace) is None


def test_the_last_whole_checkpoint_is_gone_on_from(workspace: Path, write_checkpoint: Callable[..., Path]) -> None:
    assert resume_point(workspace) is None
    write_checkpoint(5)
    whole = write_checkpoint(10)
    write_checkpoint(15, **{"trainer_state.json": b'{"global_st'})
    write_checkpoint(20, **{"optimizer.pt": b""})
    assert resume_point(workspace) == whole


@pytest.mark.parametrize("changed", ["dataset", "model"])
def test_checkpoints_of_another_dataset_or_model_are_moved_aside_and_kept(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path], changed: str
) -> None:
    for number, content in enumerate("234", 1):
        resume_point(workspace)
        write_checkpoint(5, content.encode())
        prepare(workspace, changed, content)
        assert resume_point(workspace) is None
        assert (workspace / f"output.previous-{number}" / "checkpoint-5" / "trainer_state.json").is_file()
        assert not (output / "checkpoint-5").exists()
        assert resume_point(workspace) is None


def test_the_same_contents_prepared_again_from_elsewhere_are_the_same(
    workspace: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    shutil.rmtree(workspace / "dataset")
    prepare(workspace, "dataset", "1")
    assert resume_point(workspace) == newest


def test_others_than_the_leader_change_nothing_and_come_to_the_same_answer(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    assert resume_point(workspace, leader=False) == newest
    prepare(workspace, "dataset", "2")
    before = {path: path.stat().st_mtime_ns for path in workspace.rglob("*")}
    assert resume_point(workspace, leader=False) is None  # before the leader looked
    assert {path: path.stat().st_mtime_ns for path in workspace.rglob("*")} == before
    assert resume_point(workspace) is None
    assert resume_point(workspace, leader=False) is None  # and after
    assert not (output / "checkpoint-5").exists()


def test_a_leader_killed_after_it_moved_the_output_aside_starts_afresh_too(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace)
    write_checkpoint(5)
    prepare(workspace, "dataset", "2")
    output.rename(workspace / "output.previous-1")
    assert resume_point(workspace) is None
    assert (workspace / "output.previous-1" / "checkpoint-5").is_dir()
    assert not (output / "checkpoint-5").exists()


@pytest.mark.parametrize("broken", ["dataset", "model"])
def test_a_receipt_that_cannot_be_read_is_an_error_and_moves_nothing(
    workspace: Path, write_checkpoint: Callable[..., Path], broken: str
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    (workspace / broken / NAME).write_bytes(b'{"files": [')
    with pytest.raises(StorageError, match=rf"{broken}/{NAME} cannot be read"):
        resume_point(workspace)
    assert newest.is_dir()


def test_an_origin_that_cannot_be_read_is_an_error_and_moves_nothing(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    (output / ".trainwright-origin.json").write_bytes(b"")
    with pytest.raises(StorageError, match=r"origin\.json is not JSON"):
        resume_point(workspace)
    assert newest.is_dir()


def run(monkeypatch: pytest.MonkeyPatch, workspace: Path, config: Path, index: str = "0") -> int | str | None:
    module = "trainwright.checkpoints.resume_point"
    launcher = config.with_name("launcher.py")
    monkeypatch.setattr(
        sys, "argv", [module, "--workspace", str(workspace), "--config", str(config), "--launcher", str(launcher)]
    )
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    return ended.value.code


def test_the_program_writes_the_configuration_that_trl_reads(
    workspace: Path,
    tmp_path: Path,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "resume" / "trl.yaml"
    assert run(monkeypatch, workspace, config) == 0
    assert json.loads(config.read_bytes()) == {}
    assert capsys.readouterr().out == "starting afresh\n"
    assert "runpy.run_module" in (config.parent / "launcher.py").read_text("utf-8")
    newest = write_checkpoint(5)
    assert run(monkeypatch, workspace, config) == 0
    assert json.loads(config.read_bytes()) == {"resume_from_checkpoint": str(newest)}
    assert capsys.readouterr().out == f"resuming from {newest}\n"


def test_the_program_knows_the_leader_by_its_completion_index(
    workspace: Path, tmp_path: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    prepare(workspace, "model", "2")
    assert run(monkeypatch, workspace, tmp_path / "trl.yaml", index="1") == 0
    assert newest.is_dir()
    assert run(monkeypatch, workspace, tmp_path / "trl.yaml", index="0") == 0
    assert not newest.is_dir()


def test_the_program_says_in_one_line_what_is_wrong(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "file").write_bytes(b"")
    assert run(monkeypatch, workspace, workspace / "file" / "trl.yaml") == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert str(workspace / "file") in error
