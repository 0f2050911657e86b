"""`run.json`: what is known of a run, written whole, read with patience for anything that makes no sense."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainwright.workspace import WorkspaceError, apply_umask, begin_run, drop_empty_run, end_run, read_run, touch_run

EARLY, LATE, LATEST = "2026-11-22T10:00:00Z", "2026-11-22T11:00:00Z", "2026-11-22T12:00:00Z"
DIGEST = "sha256:" + "a" * 64


def at(moment: str) -> Callable[[], str]:
    return lambda: moment


def begin(workspace: Path, moment: str = EARLY, **more: str) -> None:
    begin_run(workspace, "runs/a", run="a", owner="kfp", now=at(moment), **more)


def test_a_run_begins_is_touched_and_ends(workspace: Path) -> None:
    begin(workspace, dataset=DIGEST)
    touch_run(workspace, "runs/a", model="sha256:m", now=at(LATE))
    assert end_run(workspace, "runs/a", exported="s3://b/a/checkpoint-5", now=at(LATEST)) == read_run(workspace / "runs/a")
    assert json.loads((workspace / "runs/a/run.json").read_bytes()) == {
        "run": "a",
        "owner": "kfp",
        "started": EARLY,
        "updated": LATEST,
        "ended": LATEST,
        "dataset": DIGEST,
        "model": "sha256:m",
        "exported": "s3://b/a/checkpoint-5",
    }
    assert sorted(path.name for path in (workspace / "runs").iterdir()) == ["a"]


def test_a_run_that_is_tried_again_is_open_again_and_keeps_what_is_known(workspace: Path) -> None:
    begin(workspace, dataset=DIGEST)
    end_run(workspace, "runs/a", now=at(LATE))
    begin(workspace, LATEST, model="sha256:m")
    record = read_run(workspace / "runs/a")
    assert record is not None
    assert (record.started, record.updated, record.ended) == (EARLY, LATEST, None)
    assert (record.dataset, record.model) == (DIGEST, "sha256:m")


def test_failure_is_kept_until_the_run_goes_on_or_ends(workspace: Path) -> None:
    for go_on in (begin, lambda folder: touch_run(folder, "runs/a"), lambda folder: end_run(folder, "runs/a")):
        begin(workspace)
        failed = touch_run(workspace, "runs/a", failed="train: " + "x" * 5000)
        assert failed is not None
        assert failed == read_run(workspace / "runs/a")
        assert (len(failed.failed), failed.ended) == (2000, None)
        go_on(workspace)
        record = read_run(workspace / "runs/a")
        assert record is not None
        assert record.failed == ""


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"run": "a"}', b"\xff", b'{"run": "a", "started": "yesterday", "updated": "today"}', b" " * 2**21],
)
def test_a_record_that_makes_no_sense_is_an_unknown_run(workspace: Path, content: bytes) -> None:
    (workspace / "runs/a").mkdir(parents=True)
    (workspace / "runs/a/run.json").write_bytes(content)
    assert read_run(workspace / "runs/a") is None
    assert touch_run(workspace, "runs/a") is None
    assert end_run(workspace, "runs/a") is None
    assert (workspace / "runs/a/run.json").read_bytes() == content
    begin(workspace)
    assert read_run(workspace / "runs/a") is not None


def test_links_and_pipes_in_place_of_the_record_are_ignored(workspace: Path) -> None:
    begin(workspace)
    path = workspace / "runs/a/run.json"
    path.rename(workspace / "elsewhere")
    path.symlink_to(workspace / "elsewhere")
    assert read_run(workspace / "runs/a") is None
    path.unlink()
    os.mkfifo(path)
    assert read_run(workspace / "runs/a") is None


def test_fields_of_a_later_version_are_kept(workspace: Path) -> None:
    begin(workspace)
    path = workspace / "runs/a/run.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "colour": "red"}))
    touch_run(workspace, "runs/a", now=at(LATE))
    assert json.loads(path.read_bytes())["colour"] == "red"


def test_steps_of_a_run_that_write_at_once_lose_nothing(workspace: Path) -> None:
    begin(workspace)
    changes = [{"dataset": DIGEST}, {"model": "sha256:m"}, {"exported": "file:///x"}]
    barrier = threading.Barrier(3)

    def run(change: dict[str, str]) -> None:
        barrier.wait()
        touch_run(workspace, "runs/a", **change)  # type: ignore[arg-type]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, changes))
    record = read_run(workspace / "runs/a")
    assert record is not None
    assert (record.dataset, record.model, record.exported) == (DIGEST, "sha256:m", "file:///x")


@pytest.mark.parametrize("folder", ["..", "runs/../..", "/etc"])
def test_a_folder_elsewhere_is_refused(workspace: Path, folder: str) -> None:
    with pytest.raises(WorkspaceError, match="is not a run folder"):
        begin_run(workspace, folder, run="a", owner="kfp")


def test_a_link_in_place_of_the_folder_is_refused(workspace: Path, tmp_path: Path) -> None:
    (workspace / "runs").mkdir(parents=True)
    (workspace / "runs/a").symlink_to(tmp_path)
    with pytest.raises(WorkspaceError, match="is a link"):
        begin(workspace)


@pytest.mark.parametrize(("text", "mode"), [("0002", 0o775), ("027", 0o750), ("", 0o755)])
def test_the_umask_of_the_environment_is_that_of_folders(workspace: Path, text: str, mode: int) -> None:
    before = os.umask(0o022)
    try:
        apply_umask({"TRAINWRIGHT_UMASK": text})
        begin(workspace)
    finally:
        os.umask(before)
    for folder in (workspace, workspace / "runs", workspace / "runs/a"):
        assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.parametrize("text", ["2", "02"])
def test_short_umasks_are_read(text: str) -> None:
    before = os.umask(0o022)
    try:
        apply_umask({"TRAINWRIGHT_UMASK": text})
        assert os.umask(0) == 2
    finally:
        os.umask(before)


@pytest.mark.parametrize("text", ["8", "-1", "0o02", "rw", "10002", " "])
def test_a_umask_that_is_none_is_named(text: str) -> None:
    with pytest.raises(WorkspaceError, match=f"TRAINWRIGHT_UMASK: {text!r} is not a umask"):
        apply_umask({"TRAINWRIGHT_UMASK": text})


def test_a_run_that_has_written_nothing_leaves_no_folder(tmp_path: Path) -> None:
    begin_run(tmp_path, "runs/skipped", run="skipped", owner="o", dataset=f"sha256:{'a' * 64}")
    assert (tmp_path / "runs/skipped/dataset").is_dir()
    begin_run(tmp_path, "runs/trained", run="trained", owner="o")
    (tmp_path / "runs/trained/output").mkdir()
    assert drop_empty_run(tmp_path, "runs/skipped")
    assert not drop_empty_run(tmp_path, "runs/skipped")
    assert not drop_empty_run(tmp_path, "runs/trained")
    assert read_run(tmp_path / "runs/trained") is not None
    assert not (tmp_path / "runs/skipped").exists()


def test_a_run_with_several_trainings_keeps_what_each_had(workspace: Path) -> None:
    begin_run(workspace, "runs/r", run="r", owner="o", dataset="sha256:a", model="sha256:m")
    touch_run(workspace, "runs/r", exported="s3://e/1")
    begin_run(workspace, "runs/r", run="r", owner="o", dataset="sha256:b")
    touch_run(workspace, "runs/r", exported="s3://e/2")
    begin_run(workspace, "runs/r", run="r", owner="o", dataset="sha256:a")  # a retry of the first training
    record = end_run(workspace, "runs/r", exported="s3://e/3")
    assert record is not None
    assert record.earlier == {"dataset": ("sha256:b",), "exported": ("s3://e/1", "s3://e/2")}
    assert (record.all_of("dataset"), record.all_of("model")) == (["sha256:b", "sha256:a"], ["sha256:m"])
    assert read_run(workspace / "runs/r") == record
    assert "earlier" not in begin_run(workspace, "runs/s", run="s", owner="o").model_dump_json(exclude_defaults=True)
