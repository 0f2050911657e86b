"""The end of a run: noted in its record, and which of the others count as live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import trainjob

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.initializers import DatasetOptions
from trainwright.initializers.report_options import ReportOptions
from trainwright.steps.data.prepare import prepare_run_dataset
from trainwright.steps.ends.retire import retire_run
from trainwright.storage.errors import NotMounted
from trainwright.workspace import begin_run, end_run, read_run


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """With a run that has ended, `runs/old`, and one called `runs`."""
    for run in ("old", "runs", "current"):
        begin_run(tmp_path, f"runs/{run}", run=run, owner="kfp")
        (tmp_path / f"runs/{run}/output").mkdir()
    for run in ("old", "runs"):
        end_run(tmp_path, f"runs/{run}")
    return tmp_path


@pytest.fixture
def writes_to(cluster: EmbeddedCluster) -> Callable[[str], None]:
    """An unfinished TrainJob that says this of its folder."""

    def make(folder: str) -> None:
        metadata = {"generateName": "job-", "annotations": {names.RUN_FOLDER_ANNOTATION: folder}}
        cluster.create(trainjob("", metadata=metadata, suspend=True))

    return make


def retired(cluster: Any, workspace: Path) -> list[str]:
    return retire_run(cluster, workspace, run_id="current", namespace="default", retention="keep=0")


def test_the_end_is_noted_and_nothing_deleted_unless_asked(cluster: EmbeddedCluster, workspace: Path) -> None:
    assert retire_run(cluster, workspace, run_id="current", namespace="default") == []
    record = read_run(workspace / "runs/current")
    assert record is not None
    assert record.ended
    assert sorted(retired(cluster, workspace)) == ["old", "runs"]
    assert [path.name for path in (workspace / "runs").glob("[a-z]*")] == ["current"]


@pytest.mark.parametrize(
    ("folder", "spared"),
    [
        ("pvc://claim/runs/old", "old"),
        ("pvc://claim/team/runs/old", "old"),
        ("pvc://claim/runs/old/evaluation/0123", "old"),
        ("pvc://claim/runs/runs", "runs"),
        ("pvc://claim/runs/runs/evaluation/0123", "runs"),
        ("pvc://claim/runs/runs/old", "old"),
    ],
)
def test_the_folder_of_an_unfinished_job_stays(
    cluster: EmbeddedCluster, workspace: Path, writes_to: Callable[[str], None], folder: str, spared: str
) -> None:
    writes_to(folder)
    assert spared not in retired(cluster, workspace)


@pytest.mark.parametrize("folder", ["", "runs", "pvc://claim/runs/", "pvc://claim/runs/..", "pvc://claim/runs/a b/runs/-"])
def test_invalid_folders_of_jobs_are_ignored(
    cluster: EmbeddedCluster, workspace: Path, writes_to: Callable[[str], None], folder: str
) -> None:
    writes_to(folder)
    assert sorted(retired(cluster, workspace)) == ["old", "runs"]


def test_without_the_cluster_only_runs_that_say_that_they_have_ended_go(workspace: Path) -> None:
    class Blind:
        def list(self, *_: Any) -> Any:
            raise Forbidden("no")

    begin_run(workspace, "runs/going-on", run="going-on", owner="kfp")
    assert sorted(retired(Blind(), workspace)) == ["old", "runs"]
    assert retired(None, workspace) == []
    assert (workspace / "runs/going-on").is_dir()


def test_a_run_that_has_written_nothing_leaves_no_folder(cluster: EmbeddedCluster, workspace: Path) -> None:
    begin_run(workspace, "runs/empty", run="empty", owner="kfp")
    assert retire_run(cluster, workspace, run_id="empty", namespace="default") == []
    assert not (workspace / "runs/empty").exists()


def test_run_that_has_only_prepared_a_dataset_leaves_no_folder(cluster: EmbeddedCluster, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "t"}\n' * 2)
    options = DatasetOptions(test_fraction=0)
    prepare_run_dataset(f"file://{tmp_path}/rows.jsonl", workspace, options, ReportOptions(), owner="kfp", run_id="skipped")
    assert (workspace / "runs/skipped/dataset-report.html").is_file()
    retire_run(cluster, workspace, run_id="skipped", namespace="default")
    assert not (workspace / "runs/skipped").exists()


def test_a_retention_that_makes_no_sense_is_refused_before_anything_is_noted(cluster: EmbeddedCluster, workspace: Path) -> None:
    with pytest.raises(ValueError, match="retention: 'some'"):
        retire_run(cluster, workspace, run_id="current", namespace="default", retention="some")
    record = read_run(workspace / "runs/current")
    assert record is not None
    assert record.ended is None


def test_a_workspace_that_is_not_mounted_is_an_error() -> None:
    with pytest.raises(NotMounted, match="/no-such-volume does not exist"):
        retire_run(None, Path("/no-such-volume"), run_id="r", namespace="default")
