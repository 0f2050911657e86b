"""Training goes on from the last whole checkpoint of the same dataset and model, and from no other."""

import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prepared_folders import prepare, prepare_at
from support.optional_packages import require_packages
from support.tiny_tokenizer import write_tokenizer

from trainwright.checkpoints.job_record import Writer
from trainwright.checkpoints.origin import recorded_initial_job, recorded_origin
from trainwright.checkpoints.resume_point import ResumeOptions, resume_point
from trainwright.storage.errors import StorageError
from trainwright.workspace.receipt import NAME


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


def test_checkpoints_of_another_request_are_moved_aside(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    first, other = ResumeOptions(training="1"), ResumeOptions(training="2")
    resume_point(workspace, options=first)
    kept = write_checkpoint(5)
    assert resume_point(workspace, options=first) == kept
    assert resume_point(workspace) == kept, "a pod that does not know what it trains"
    assert resume_point(workspace, options=other) is None
    assert "archived" in caplog.text
    assert (workspace / "output.previous-1" / "checkpoint-5").is_dir()


def test_last_checkpoint_is_gone_on_from_whatever_has_written_it_if_that_is_asked_for(
    workspace: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace, options=ResumeOptions(training="1"), writer=Writer("one", "u1"))
    write_checkpoint(5)
    end = write_checkpoint(6, **ended(6))
    asked = ResumeOptions.from_environment({"TRAINWRIGHT_RESUME": "last", "TRAINWRIGHT_TRAINING": "2", "TRAINJOB_NAME": "two"})
    two = Writer("two", "u2")
    assert resume_point(workspace, options=asked, writer=two, leader=False) == end
    assert resume_point(workspace, options=asked, writer=two) == end
    retry = ResumeOptions(training="2")
    assert resume_point(workspace, options=retry, writer=Writer("three", "u3")) == end.with_name("checkpoint-5"), (
        "it is that of the second now"
    )


def ended(step: int) -> dict[str, bytes]:
    return {"trainer_state.json": json.dumps({"global_step": step, "max_steps": step}).encode()}


def test_checkpoint_with_no_step_left_is_not_gone_on_from(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Writer("one", "u1"), Writer("two", "u2")
    resume_point(workspace, writer=one)
    before = write_checkpoint(5)
    write_checkpoint(6, **ended(6))
    assert resume_point(workspace, leader=False, writer=two) == before, "a node that is faster than the leader"
    assert resume_point(workspace, writer=two) == before
    assert resume_point(workspace, leader=False, writer=two) == before
    assert "reached the end" in caplog.text
    assert not (output / "checkpoint-6").exists()


def test_only_a_restarted_pod_goes_on_from_the_end_if_there_is_nothing_before_it(
    workspace: Path, write_checkpoint: Callable[..., Path]
) -> None:
    one, two = Writer("one", "u1"), Writer("two", "u2")
    resume_point(workspace, writer=one)
    end = write_checkpoint(6, **ended(6))
    assert resume_point(workspace, leader=False, writer=one) == resume_point(workspace, writer=one) == end
    assert resume_point(workspace, leader=False, writer=two) is None
    assert resume_point(workspace, writer=two) is None


def test_checkpoints_of_another_trainer_are_moved_aside(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    def point(trainer: str) -> Path | None:
        return resume_point(workspace, options=ResumeOptions(trainer=trainer))

    point("dpo")
    own = write_checkpoint(5)
    assert point("dpo") == own
    assert point("") == own  # another program may be the same one
    assert (recorded_origin(output) or {})["trainer"] == "dpo"
    assert point("kto") is None
    assert (workspace / "output.previous-1" / "checkpoint-5").is_dir()


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
    with pytest.raises(StorageError, match=rf"{broken}/{NAME} cannot be parsed"):
        resume_point(workspace)
    assert newest.is_dir()


@pytest.mark.parametrize("recorded", [recorded_origin, recorded_initial_job])
def test_a_record_that_is_archived_while_it_is_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    assert not recorded(tmp_path / "output")


def test_an_origin_that_cannot_be_read_is_an_error_and_moves_nothing(
    workspace: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    resume_point(workspace)
    newest = write_checkpoint(5)
    (output / ".trainwright-origin.json").write_bytes(b"")
    with pytest.raises(StorageError, match=r"origin\.json is not valid JSON"):
        resume_point(workspace)
    assert newest.is_dir()


def run(monkeypatch: pytest.MonkeyPatch, workspace: Path, config: Path, *more: str, index: str = "0") -> int | str | None:
    module = "trainwright.checkpoints.resume_point"
    launcher = config.with_name("launcher.py")
    words = [module, "--workspace", str(workspace), "--config", str(config), "--launcher", str(launcher), *more]
    monkeypatch.setattr(sys, "argv", words)
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
    assert capsys.readouterr().out == "starting from nothing: there is no checkpoint of this run\n"
    assert "runpy.run_module" in (config.parent / "launcher.py").read_text("utf-8")
    newest = write_checkpoint(5)
    assert run(monkeypatch, workspace, config) == 0
    assert json.loads(config.read_bytes()) == {"resume_from_checkpoint": str(newest)}
    assert capsys.readouterr().out == "resuming from checkpoint-5 of its own run\n"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("row", "asked", "expected"),
    [
        ({"messages": []}, "auto", "<|im_end|>"),
        ({"prompt": [], "completion": []}, "auto", "<|im_end|>"),
        ({"prompt": "a", "completion": "b"}, "auto", None),
        ({"messages": []}, "", None),
    ],
)
def test_the_program_finds_the_end_token_of_the_template(
    row: dict[str, object],
    asked: str,
    expected: str | None,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_packages("transformers", "jinja2")
    (workspace / "dataset" / "train.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    write_tokenizer(workspace / "model", additional_special_tokens=["<|im_end|>"])
    monkeypatch.setenv("TRAINWRIGHT_END_TOKEN", asked)
    monkeypatch.setenv("TRAINWRIGHT_LOSS_ON", "answers")
    config = tmp_path / "trl.yaml"
    assert run(monkeypatch, workspace, config) == 0
    assert json.loads(config.read_bytes()).get("eos_token") == expected
    assert Writer.from_environment({**os.environ, "TRAINJOB_NAME": "job"}) == Writer("job", loss_on="answers")


@pytest.mark.medium
def test_the_program_fails_if_the_template_ends_answers_with_text(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_packages("transformers", "jinja2")
    (workspace / "dataset" / "train.jsonl").write_text('{"messages": []}\n', "utf-8")
    write_tokenizer(workspace / "model", template="{% for m in messages %}{{ m.content }}\n{% endfor %}")
    monkeypatch.setenv("TRAINWRIGHT_END_TOKEN", "auto")
    assert run(monkeypatch, workspace, tmp_path / "trl.yaml") == 1
    assert "end_token=auto: the chat template ends answers with no special token" in capsys.readouterr().err


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


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Path]:
    """A dataset and a model that lie elsewhere than in the workspace, as mounts of their own do."""
    folders = {kind: tmp_path / "shared" / kind for kind in ("dataset", "model")}
    for kind, folder in folders.items():
        prepare_at(folder, kind, "1")
    return folders


def test_the_dataset_and_the_model_may_lie_elsewhere(
    tmp_path: Path, shared: dict[str, Path], write_checkpoint: Callable[..., Path]
) -> None:
    assert resume_point(tmp_path, **shared) is None
    newest = write_checkpoint(5)
    assert resume_point(tmp_path, **shared) == newest
    prepare_at(shared["dataset"], "dataset", "2")
    assert resume_point(tmp_path, **shared) is None
    assert (tmp_path / "output.previous-1" / "checkpoint-5").is_dir()


def test_the_program_takes_them_where_they_are_said_to_lie(
    tmp_path: Path, shared: dict[str, Path], write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for kind, folder in shared.items() for word in (f"--{kind}", str(folder))]
    assert run(monkeypatch, tmp_path, tmp_path / "trl.yaml", *words) == 0
    origin = json.loads((tmp_path / "output" / ".trainwright-origin.json").read_bytes())
    assert origin == {kind: prepare_at(folder, kind, "1") for kind, folder in shared.items()}


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_inputs_are_those_that_the_job_was_given_digests_of(
    workspace: Path,
    tmp_path: Path,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    found, other = prepare(workspace, kind, "1"), "sha256:" + "0" * 64
    newest, config = write_checkpoint(5), tmp_path / "trl.yaml"
    monkeypatch.setenv(f"TRAINWRIGHT_{kind.upper()}_DIGEST", found)
    assert run(monkeypatch, workspace, config) == 0
    config.unlink()
    capsys.readouterr()

    def refused(*expected: str, index: str = "0") -> None:
        assert run(monkeypatch, workspace, config, index=index) == 1
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert all(text in error for text in (*expected, str(workspace / kind))), error
        assert not config.exists()
        assert newest.is_dir()

    (workspace / kind / "file").write_bytes(b"xy")
    refused(found, "corrupt: file has 2 bytes instead of 1")
    (workspace / kind / "file").unlink()
    refused(found, "corrupt: file is missing", index="1")
    monkeypatch.setenv(f"TRAINWRIGHT_{kind.upper()}_DIGEST", other)
    refused(found, other)
    refused(found, other, index="1")
    shutil.rmtree(workspace / kind)
    refused(other, ".trainwright-receipt.json is missing or invalid")


def test_the_program_records_the_job_that_writes_and_heeds_the_umask(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINJOB_NAME", "job-1")
    monkeypatch.setenv("TRAINWRIGHT_RESUME_JOB", "uid-1")
    monkeypatch.setenv("TRAINWRIGHT_UMASK", "0002")
    before = os.umask(0o077)
    try:
        assert run(monkeypatch, workspace, tmp_path / "resume" / "trl.yaml") == 0
    finally:
        os.umask(before)
    assert json.loads((workspace / "output" / ".trainwright-jobs.json").read_bytes()) == [{"name": "job-1", "uid": "uid-1"}]
    assert (workspace / "output").stat().st_mode & 0o777 == 0o775
