"""Runs that share a workspace and an export URI: each exports what it has trained itself, to a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from prepared_folders import prepare

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.export_run import export_run, trained_folder
from trainwright.checkpoints.job_record import JOBS, Writer, record_writer, recorded_writers
from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.checkpoints.publish import ExportResult
from trainwright.checkpoints.restore import verify_export
from trainwright.checkpoints.resume_point import resume_point
from trainwright.jobs import Identity
from trainwright.jobs.state.run_folder import run_folder
from trainwright.steps.training.own_step import OwnStep
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri


@pytest.fixture
def exports(tmp_path: Path) -> str:
    return str(StorageUri.from_path(tmp_path / "exports"))


@pytest.fixture
def train(workspace: Path, output: Path, write_checkpoint: Callable[..., Path]) -> Callable[..., Path]:
    """`train(folder, step, weights, jobs=...)`: a checkpoint in a run's output, written by these jobs."""

    def run(folder: str, step: int = 5, weights: bytes = b"weights", jobs: tuple[str, ...] = ()) -> Path:
        made = write_checkpoint(step, weights)
        place = workspace / folder / "output"
        shutil.copytree(made, place / made.name)
        for job in jobs:
            record_writer(place, Writer(job, "uid"))
        return place

    return run


def export(workspace: Path, exports: str, run: str = "a", **more: object) -> ExportResult:
    return export_run(workspace, f"runs/{run}", exports, run=run, **more)  # type: ignore[arg-type]


def test_runs_share_a_workspace_and_an_export_uri_and_never_collide(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    for run in "ab":
        train(f"runs/{run}", weights=run.encode())
    first, second = (export(workspace, exports, run, trainjob=f"job-{run}") for run in "ab")
    assert (first.uri, second.uri) == (f"{exports}/a/checkpoint-5", f"{exports}/b/checkpoint-5")
    assert [each.manifest.source for each in (first, second)] == ["a/job-a", "b/job-b"]
    for each in (first, second):
        verify_export(each.uri, digest=each.digest)
        assert (StorageUri.parse(each.uri).path.parent / "latest.json").is_file()
    assert not (StorageUri.parse(exports).path / "latest.json").exists()


def test_manifest_names_the_dataset_and_model_of_the_run(workspace: Path, exports: str, train: Callable[..., Path]) -> None:
    for kind in ("dataset", "model"):
        prepare(workspace / "runs/a", kind, "1")
    resume_point(workspace / "runs/a")
    train("runs/a")
    metadata = export(workspace, exports, metadata={"loss": 1}).manifest.metadata
    assert set(metadata["origin"]) == {"dataset", "model"}
    assert metadata["loss"] == 1


@pytest.mark.medium
def test_only_what_the_named_job_has_written_is_exported(workspace: Path, exports: str, train: Callable[..., Path]) -> None:
    train("runs/a", jobs=("job-1", "job-2"))
    for job in ("job-1", "job-2", ""):
        assert export(workspace, exports, trainjob=job).manifest.step == 5
    with pytest.raises(CheckpointError, match=r"runs/a/output has no checkpoints of the TrainJob job-3; .* by: job-1, job-2"):
        export(workspace, exports, trainjob="job-3")


def test_an_output_without_a_record_is_exported_under_any_name(workspace: Path, exports: str, train: Callable[..., Path]) -> None:
    train("runs/a")
    assert export(workspace, exports, trainjob="job-3").manifest.source == "a/job-3"


def test_without_a_folder_there_is_no_checkpoint(workspace: Path, exports: str) -> None:
    with pytest.raises(NoCheckpoint, match="no complete checkpoint in"):
        export(workspace, exports)


@pytest.mark.parametrize("folder", ["..", "runs/../..", "/etc"])
def test_a_folder_elsewhere_is_refused(workspace: Path, exports: str, folder: str) -> None:
    with pytest.raises(CheckpointError, match="is not a run folder"):
        export_run(workspace, folder, exports, run="a")


@pytest.mark.parametrize("link", ["runs", "runs/a", "runs/a/output"])
def test_a_link_is_not_exported(workspace: Path, exports: str, train: Callable[..., Path], link: str) -> None:
    train("runs/a")
    os.rename(workspace / link, workspace / "elsewhere")
    (workspace / link).symlink_to(workspace / "elsewhere")
    with pytest.raises(CheckpointError, match=f"{workspace / link} is a link"):
        export(workspace, exports)


class TestExportedBy:
    def test_a_run_finds_its_own_latest_export_and_no_other(
        self, workspace: Path, exports: str, train: Callable[..., Path]
    ) -> None:
        for run, step in (("a", 5), ("a", 10), ("b", 20)):
            train(f"runs/{run}", step)
            export(workspace, exports, run)
        assert latest_export_lookup(exports)(Identity("kfp", "a", "train")) == f"{exports}/a/checkpoint-10"
        assert latest_export_lookup(exports)(Identity("kfp", "b", "train")) == f"{exports}/b/checkpoint-20"
        assert latest_export_lookup(exports)(Identity("kfp", "c", "train")) == ""

    def test_mapped_steps_have_each_their_own(self, workspace: Path, exports: str, train: Callable[..., Path]) -> None:
        run = "manual__2026-11-22T10:00:00+00:00"
        for index, step in ((-1, 5), (0, 10), (1, 15)):
            folder = run_folder(run, index)
            train(folder, step)
            export_run(workspace, folder, exports, run=run, trainjob="job")
        steps = [
            latest_export_lookup(exports)(Identity("kfp", run, "train", index)).rpartition("-")[2] for index in (-1, 0, 1, 2)
        ]
        assert steps == ["5", "10", "15", ""]

    @pytest.mark.parametrize("uri", ["hf://a/b", "nonsense"])
    def test_a_store_that_cannot_be_read_is_a_warning(self, uri: str, caplog: pytest.LogCaptureFixture) -> None:
        assert latest_export_lookup(uri)(Identity("kfp", "a", "train")) == ""
        assert "could not be looked up" in caplog.text


class TestJobRecord:
    def test_each_job_stands_once_and_the_newest_last(self, output: Path) -> None:
        assert recorded_writers(output) is None
        for name, uid in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a", "1")):
            record_writer(output, Writer(name, uid))
        assert recorded_writers(output) == [Writer("b", "1"), Writer("a", "2"), Writer("a", "1")]
        assert json.loads((output / JOBS).read_bytes())[0] == {"name": "b", "uid": "1"}

    def test_record_writer_skips_the_current_last_writer(self, output: Path) -> None:
        record_writer(output, Writer("a"))
        before = (output / JOBS).stat().st_ino
        record_writer(output, Writer("a"))
        assert (output / JOBS).stat().st_ino == before

    @pytest.mark.parametrize("content", [b"", b"{", b"{}", b"5", b"\xff"])
    def test_a_record_that_makes_no_sense_stops_nobody(
        self, output: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        output.mkdir()
        (output / JOBS).write_bytes(content)
        assert recorded_writers(output) is None
        assert "is invalid and is ignored" in caplog.text
        record_writer(output, Writer("a"))
        assert recorded_writers(output) == [Writer("a")]

    def test_entries_that_make_no_sense_are_left_out(self, output: Path) -> None:
        output.mkdir()
        (output / JOBS).write_bytes(b'[5, {}, {"name": 1}, {"name": "a"}, {"name": "b", "uid": null}]')
        assert recorded_writers(output) == [Writer("a"), Writer("b")]

    def test_the_writer_comes_from_the_environment(self) -> None:
        assert Writer.from_environment({}) is None
        assert Writer.from_environment({"TRAINJOB_NAME": "a"}) == Writer("a")
        assert Writer.from_environment({"TRAINJOB_NAME": "a", "TRAINWRIGHT_RESUME_JOB": "u"}) == Writer("a", "u")

    def test_the_leader_records_it_and_others_do_not(self, workspace: Path) -> None:
        output = workspace / "output"
        resume_point(workspace, leader=False, writer=Writer("other"))
        assert recorded_writers(output) is None
        resume_point(workspace, writer=Writer("leader", "u"))
        assert recorded_writers(output) == [Writer("leader", "u")]

    def test_a_new_output_has_a_new_record_and_the_old_one_keeps_its_own(
        self, workspace: Path, train: Callable[..., Path]
    ) -> None:
        prepare(workspace, "dataset", "1")
        resume_point(workspace, writer=Writer("a"))
        prepare(workspace, "dataset", "2")
        resume_point(workspace, writer=Writer("b"))
        assert recorded_writers(workspace / "output") == [Writer("b")]
        assert recorded_writers(workspace / "output.previous-1") == [Writer("a")]

    def test_a_disk_that_is_full_is_an_error(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(StorageError, match="the disk is full"):
            record_writer(output, Writer("a"))


@pytest.mark.medium
def test_trainings_of_one_run_are_exported_from_their_own_folders_to_folders_of_their_own(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    identities = [OwnStep(path).identity("a", "train") for path in ("train", "train-2", "for-loop-1[0]/train")]
    for number, identity in enumerate(identities):
        train(identity.folder, weights=str(number).encode(), jobs=(f"job-{number}",))
    made = [export(workspace, exports, trainjob=f"job-{number}", owner="kfp") for number in range(3)]
    assert [one.uri for one in made] == [f"{exports}/{identity.exports}/checkpoint-5" for identity in identities]
    assert len({one.digest for one in made}) == 3
    assert [latest_export_lookup(exports)(identity) for identity in identities] == [one.uri for one in made]
    assert export(workspace, exports, owner="kfp").uri == made[0].uri, "without a job it is the run's folder"


def test_training_that_ran_again_is_exported_from_the_folder_of_its_job(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    job = "x-0a1b2c3d"
    train("runs/a", weights=b"1", jobs=(job,))
    train("runs/a/Again-0a1b2c3d-2-aaaaaa", weights=b"2", jobs=(f"{job}-2",))
    train("runs/a/again-99999999", weights=b"3", jobs=("y-99999999",))
    train("runs/a/again-99999999-2-bbbbbb", weights=b"4", jobs=("y-99999999-2",))
    folders = {name: trained_folder(workspace, "runs/a", name) for name in (job, f"{job}-2", "y-99999999", "y-99999999-2", "")}
    assert list(folders.values()) == [
        *("runs/a", "runs/a/Again-0a1b2c3d-2-aaaaaa", "runs/a/again-99999999", "runs/a/again-99999999-2-bbbbbb"),
        "runs/a/Again-0a1b2c3d-2-aaaaaa",
    ]
    # The jobs were deleted, and the next one has the name of the second: it goes on in the folder of the first.
    train("runs/a", step=6, weights=b"5", jobs=(job, f"{job}-2"))
    assert trained_folder(workspace, "runs/a", f"{job}-2") == "runs/a"
    chosen = export_run(workspace, "runs/a/Again-0a1b2c3d-2-aaaaaa", exports, run="a", is_exact=True)
    assert "/a-Again-0a1b2c3d-2-aaaaaa-" in chosen.uri


def test_the_only_training_of_a_run_is_found_wherever_it_is(workspace: Path, exports: str, train: Callable[..., Path]) -> None:
    train("runs/a/fit-0a1b2c3d")
    assert export(workspace, exports).manifest.step == 5
    train("runs/a/other-0a1b2c3d")
    with pytest.raises(CheckpointError, match=r"has the outputs of several trainings: .*fit-0a1b2c3d.*other-0a1b2c3d"):
        export(workspace, exports)
    assert export_run(workspace, "runs/a/other-0a1b2c3d", exports, run="a").manifest.step == 5


def test_a_training_that_recorded_no_job_is_never_taken_for_another(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    train("runs/a", weights=b"first")
    assert export(workspace, exports, trainjob="first").manifest.step == 5
    train("runs/a/train-2-0a1b2c3d", weights=b"second")
    for job in ("first", "second"):
        with pytest.raises(CheckpointError, match=rf"none of which records the TrainJob {job}: .*; set folder"):
            export(workspace, exports, trainjob=job)
    chosen = export_run(workspace, "runs/a/train-2-0a1b2c3d", exports, run="a", trainjob="second")
    assert chosen.manifest.source == "a/second"
    assert chosen.uri != f"{exports}/a/checkpoint-5"


@pytest.mark.medium
def test_an_export_of_another_dag_is_neither_resumed_from_nor_added_to(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    train("runs/a")
    made = export(workspace, exports, owner="airflow/one")
    one, other = (Identity(f"airflow/{dag}", "a", "train") for dag in ("one", "other"))
    assert latest_export_lookup(exports)(one) == made.uri
    assert latest_export_lookup(exports)(other) == ""
    train("runs/a", step=6)
    with pytest.raises(CheckpointError, match="has exports of airflow/one, and this is airflow/other"):
        export(workspace, exports, owner="airflow/other")
    assert export(workspace, exports, owner="airflow/one").manifest.step == 6


@pytest.mark.medium
def test_an_export_by_job_takes_the_folder_of_its_step_although_nothing_records_it(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    alone, second, silent = (OwnStep(path).identity("a", "train") for path in ("train", "train-2", "fit"))
    train(alone.folder, weights=b"first")
    train(second.folder, weights=b"second")
    (workspace / silent.folder).mkdir()
    made = [export(workspace, exports, trainjob=job) for job in (alone.name(), second.name(), second.name(attempt=2))]
    assert [one.uri for one in made] == [f"{exports}/{one.exports}/checkpoint-5" for one in (alone, second, second)]
    with pytest.raises(NoCheckpoint):
        export(workspace, exports, trainjob=silent.name())


def test_a_training_that_saved_nothing_exports_nothing_of_another(
    workspace: Path, exports: str, train: Callable[..., Path]
) -> None:
    alone, second = (OwnStep(path).identity("a", "train") for path in ("train", "train-2"))
    train(second.folder)
    with pytest.raises(NoCheckpoint):
        export(workspace, exports, trainjob=alone.name())
