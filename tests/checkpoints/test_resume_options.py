"""Where a job goes on from when it says so: afresh, from an export, and from its own checkpoints once it has some."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from checkpoint_files import stored_path
from prepared_folders import prepare

from trainwright.api import names
from trainwright.checkpoints import resume_point as module
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.pointers import find_export, latest_export_lookup
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.checkpoints.resume_point import ResumeOptions, resume_point
from trainwright.jobs import Identity
from trainwright.jobs.request.workspace import SCHEMES
from trainwright.storage.errors import StorageError
from trainwright.storage.open import open_store
from trainwright.storage.uri import StorageUri

WriteCheckpoint = Callable[..., Path]
NEVER = ResumeOptions("never", "job-1")


@pytest.fixture
def workspace(output: Path) -> Path:
    prepare(output.parent, "dataset", "1")
    prepare(output.parent, "model", "1")
    return output.parent


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Another volume, with the same dataset and model prepared on it."""
    prepare(tmp_path / "fresh", "dataset", "1")
    prepare(tmp_path / "fresh", "model", "1")
    return tmp_path / "fresh"


@pytest.fixture
def exports(workspace: Path, output: Path, write_checkpoint: WriteCheckpoint) -> str:
    """A folder with an export of step 10, and one of step 5, of the run `run`."""
    resume_point(workspace)
    target = str(StorageUri.from_path(workspace / "exports" / "run"))
    for step in (5, 10):
        write_checkpoint(step)
        export_checkpoint(output, target, source="run/job", step=step)
    return target


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_export_of_another_trainer_is_not_resumed_from(
    workspace: Path, output: Path, write_checkpoint: WriteCheckpoint, fresh: Path
) -> None:
    resume_point(workspace, options=ResumeOptions(trainer="sft"))
    write_checkpoint(5)
    uri = export_checkpoint(output, str(StorageUri.from_path(workspace / "exports")), source="run/job", step=5).uri
    assert resume_point(fresh, options=ResumeOptions(export=uri, trainer="dpo")) is None
    with pytest.raises(CheckpointError, match="it is a checkpoint of sft, and dpo would go on with its steps"):
        resume_point(fresh, options=ResumeOptions(uri, "job", trainer="dpo"))
    assert resume_point(fresh, options=ResumeOptions(uri, "job-2", trainer="sft")) == fresh / "output" / "checkpoint-5"


def test_export_with_no_step_left_is_resumed_from_only_if_it_is_named(
    workspace: Path, output: Path, write_checkpoint: WriteCheckpoint, fresh: Path
) -> None:
    resume_point(workspace)
    write_checkpoint(5, **{"trainer_state.json": b'{"global_step": 5, "max_steps": 5}'})
    uri = export_checkpoint(output, str(StorageUri.from_path(workspace / "exports")), source="run/job", step=5).uri
    assert resume_point(fresh, options=ResumeOptions(export=uri)) is None
    assert resume_point(fresh, options=ResumeOptions(uri, "job")) == fresh / "output" / "checkpoint-5"


def test_never_starts_afresh_once_and_then_goes_on_from_its_own(
    workspace: Path, output: Path, write_checkpoint: WriteCheckpoint
) -> None:
    resume_point(workspace)
    write_checkpoint(50)
    assert resume_point(workspace, options=NEVER) is None
    assert (workspace / "output.previous-1" / "checkpoint-50").is_dir()
    assert resume_point(workspace, options=NEVER) is None  # restarted before it had written anything
    assert not (workspace / "output.previous-2").exists()
    own = write_checkpoint(5)
    assert resume_point(workspace, options=NEVER) == own
    assert resume_point(workspace) == own  # a later job that does not mind
    assert resume_point(workspace, options=ResumeOptions("never", "job-2")) is None
    assert not (output / "checkpoint-5").exists()


def test_never_of_others_than_the_leader_is_the_same_before_and_after_it(
    workspace: Path, write_checkpoint: WriteCheckpoint
) -> None:
    resume_point(workspace)
    write_checkpoint(50)
    assert resume_point(workspace, leader=False, options=NEVER) is None
    assert (workspace / "output" / "checkpoint-50").is_dir()
    assert resume_point(workspace, options=NEVER) is None
    assert resume_point(workspace, leader=False, options=NEVER) is None
    own = write_checkpoint(5)
    assert resume_point(workspace, leader=False, options=NEVER) == own


@pytest.mark.parametrize("leader", [True, False])
def test_a_job_that_follows_a_preempted_one_goes_on_from_that_and_from_nothing_before_it(
    workspace: Path, write_checkpoint: WriteCheckpoint, leader: bool
) -> None:
    resume_point(workspace)
    write_checkpoint(50)
    second, third = (
        ResumeOptions("never", "job-2", resumes_from=("job-1",)),
        ResumeOptions("never", "job-3", resumes_from=("job-2", "job-1")),
    )
    assert resume_point(workspace, leader=leader, options=second) is None  # job-1 had not begun
    assert resume_point(workspace, options=NEVER) is None
    own = write_checkpoint(5)
    assert resume_point(workspace, leader=leader, options=third) == own  # job-2 had not begun
    assert resume_point(workspace, leader=not leader, options=third) == own
    assert resume_point(workspace, options=ResumeOptions("never", "job-4", resumes_from=("job-3",))) == own


@pytest.mark.medium
@pytest.mark.parametrize("named", ["", "/checkpoint-10"])
def test_an_export_is_restored_and_then_given_up_for_what_the_job_has_itself(
    exports: str, fresh: Path, output: Path, named: str
) -> None:
    options = ResumeOptions(f"{exports}{named}", "job-1")
    point = resume_point(fresh, options=options)
    assert point == fresh / "output" / "checkpoint-10"
    whole = files(output / "checkpoint-10")
    assert files(point) == {name: content for name, content in whole.items() if name != "training_args.bin"}
    assert resume_point(fresh, options=options) == point
    newer = fresh / "output" / "checkpoint-15"
    shutil.copytree(point, newer)
    (newer / "trainer_state.json").write_text('{"global_step": 15}')
    shutil.rmtree(point)  # as rotation does
    assert resume_point(fresh, options=options) == newer


@pytest.mark.medium
def test_an_earlier_export_is_gone_on_from_although_the_volume_is_further(exports: str, workspace: Path) -> None:
    point = resume_point(workspace, options=ResumeOptions(f"{exports}/checkpoint-5", "job-1"))
    assert point == workspace / "output" / "checkpoint-5"
    assert not (workspace / "output" / "checkpoint-10").exists()
    assert (workspace / "output.previous-1" / "checkpoint-10").is_dir()


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "trainer_state.json"])
def test_a_damaged_export_is_refused_and_nothing_pretends_to_be_restored(exports: str, fresh: Path, file: str) -> None:
    stored = stored_path(StorageUri.parse(exports).path / "checkpoint-10", file)
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=f"{file} is corrupt"):
        resume_point(fresh, options=ResumeOptions(exports, "job-1"))
    assert not list((fresh / "output").glob("checkpoint-*"))


def test_where_no_export_is_the_error_says_so(fresh: Path, tmp_path: Path) -> None:
    uri = str(StorageUri.from_path(tmp_path / "nothing"))
    with pytest.raises(
        NoCheckpoint, match=r"contains no export: it has neither manifest\.json nor latest\.json.*no such path on this machine"
    ):
        resume_point(fresh, options=ResumeOptions(uri, "job-1"))


@pytest.mark.medium
def test_the_leader_can_be_killed_at_every_write_and_the_next_comes_to_the_same(
    exports: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    before = workspace.parent / "before"
    shutil.copytree(workspace, before)
    options, effects = (
        ResumeOptions(f"{exports}/checkpoint-5", "job-1"),
        ("archive", "record_initial_job", "record_origin", "restore_checkpoint"),
    )
    for when in ("before", "after"):
        for effect in effects:
            shutil.rmtree(workspace)
            shutil.copytree(before, workspace)
            real = getattr(module, effect)

            def dying(*arguments: object, when: str = when, real: Callable[..., object] = real, **more: object) -> object:
                if when == "after":
                    real(*arguments, **more)
                raise Killed

            with monkeypatch.context() as patched:
                patched.setattr(module, effect, dying)
                with pytest.raises(Killed):
                    resume_point(workspace, options=options)
            assert resume_point(workspace, options=options) == workspace / "output" / "checkpoint-5", (when, effect)
            kept = [path.parent.name for path in workspace.rglob("checkpoint-10") if "exports" not in path.parts]
            assert kept == ["output.previous-1"], (when, effect)


@pytest.mark.medium
def test_incomplete_checkpoint_gives_way_to_the_export(exports: str, fresh: Path) -> None:
    resume_point(fresh)
    (fresh / "output" / "checkpoint-10").mkdir()
    point = resume_point(fresh, options=ResumeOptions(job="job-1", export=exports))
    assert point == fresh / "output" / "checkpoint-10"
    assert (fresh / "output" / "checkpoint-10.previous-1").is_dir()


@pytest.mark.medium
def test_auto_takes_the_export_only_where_the_volume_has_nothing(exports: str, workspace: Path, fresh: Path) -> None:
    options = ResumeOptions(job="job-1", export=f"{exports}/checkpoint-5")
    assert resume_point(workspace, options=options) == workspace / "output" / "checkpoint-10"
    assert resume_point(fresh, options=options) == fresh / "output" / "checkpoint-5"


@pytest.mark.parametrize("leader", [True, False])
def test_auto_does_not_take_the_export_of_another_dataset(exports: str, fresh: Path, leader: bool) -> None:
    prepare(fresh, "dataset", "2")
    assert resume_point(fresh, leader=leader, options=ResumeOptions(job="job-1", export=exports), timeout=0) is None


@pytest.mark.parametrize("leader", [True, False])
def test_auto_does_without_an_export_that_is_not_to_be_seen(
    fresh: Path, tmp_path: Path, leader: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = ResumeOptions(job="job-1", export=str(StorageUri.from_path(tmp_path / "elsewhere")))
    assert resume_point(fresh, leader=leader, options=options, timeout=0) is None
    assert "contains no export" in caplog.text


def test_a_named_export_is_taken_whatever_it_comes_from(exports: str, fresh: Path) -> None:
    prepare(fresh, "dataset", "2")
    assert resume_point(fresh, options=ResumeOptions(exports, "job-1")) == fresh / "output" / "checkpoint-10"


@pytest.mark.medium
@pytest.mark.parametrize("auto", [True, False])
def test_the_others_wait_for_what_the_leader_restores(exports: str, fresh: Path, auto: bool) -> None:
    options = ResumeOptions(job="job-1", export=exports) if auto else ResumeOptions(exports, "job-1")
    answers: list[Path | None] = []
    waiting = partial(resume_point, fresh, leader=False, options=options, timeout=30, poll_seconds=0.01)
    other = threading.Thread(target=lambda: answers.append(waiting()))
    other.start()
    assert not (fresh / "output").exists()
    point = resume_point(fresh, options=options)
    other.join(30)
    assert answers == [point]


def test_the_others_give_up_where_nothing_comes(exports: str, fresh: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"has not restored .* within 0\.05 s; check that all nodes mount the same workspace"
    ):
        resume_point(fresh, leader=False, options=ResumeOptions(exports, "job-1"), timeout=0.05, poll_seconds=0.01)


def test_the_wish_comes_from_the_environment() -> None:
    assert ResumeOptions.from_environment({"TRAINJOB_NAME": "a"}) == ResumeOptions(job="a")
    assert ResumeOptions.from_environment({names.RESUME_VARIABLE: "auto"}) == ResumeOptions()
    told = {names.RESUME_VARIABLE: "never", names.RESUME_JOB_VARIABLE: "uid", "TRAINJOB_NAME": "a"}
    assert ResumeOptions.from_environment(told) == ResumeOptions("never", "uid")
    assert ResumeOptions.from_environment({**told, names.RESUMES_FROM_VARIABLE: "b,a"}) == ResumeOptions(
        "never", "uid", resumes_from=("b", "a")
    )
    assert ResumeOptions.from_environment({names.RESUME_EXPORT_VARIABLE: "file:///x"}) == ResumeOptions(export="file:///x")
    with pytest.raises(StorageError, match="a restart cannot be recognized"):
        ResumeOptions.from_environment({names.RESUME_VARIABLE: "never"})


def test_only_the_latest_export_of_the_run_itself_is_its_own(exports: str, tmp_path: Path) -> None:
    root = exports.removesuffix("/run")
    assert latest_export_lookup(root)(Identity("kfp", "run", "train")) == f"{exports}/checkpoint-10"
    assert latest_export_lookup(root)(Identity("kfp", "ru", "train")) == ""
    folder = StorageUri.parse(exports).path
    folder.rename(folder.with_name("ru"))
    assert latest_export_lookup(root)(Identity("kfp", "ru", "train")) == "", "it is in its folder, but of another run"
    assert latest_export_lookup(str(StorageUri.from_path(tmp_path / "nothing")))(Identity("kfp", "run", "train")) == ""


def test_a_store_that_cannot_be_read_is_a_warning(exports: str, caplog: pytest.LogCaptureFixture) -> None:
    (StorageUri.parse(exports).path / "checkpoint-10" / "manifest.json").write_bytes(b"{")
    assert latest_export_lookup(exports.removesuffix("/run"))(Identity("kfp", "run", "train")) == ""
    assert "could not be looked up" in caplog.text


def test_an_export_says_what_it_comes_from(exports: str) -> None:
    origin = find_export(exports).manifest.metadata["origin"]
    assert set(origin) == {"dataset", "model"}


def test_every_resume_scheme_has_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "x")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
    for scheme in set(SCHEMES) - {"pvc"}:  # a claim is mounted, and read as a file
        open_store(f"{scheme}://{tmp_path if scheme == 'file' else 'bucket/key'}")
