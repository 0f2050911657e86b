"""Pruning deletes what is finished and beyond the number to keep, and in doubt nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.api.times import rfc3339
from trainwright.workspace import Receipt, WorkspaceError, begin_run, end_run, parse_retention, prune_runs, publish
from trainwright.workspace import retention as module
from trainwright.workspace.prepared import find_prepared

Finished = Callable[..., tuple[Path, Receipt]]
NOW = 1_800_000_000.0
HOUR = 3600.0


def moment(seconds_ago: float) -> Callable[[], str]:
    return lambda: rfc3339(datetime.fromtimestamp(NOW - seconds_ago, UTC))


def age(folder: Path, seconds_ago: float) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (NOW - seconds_ago,) * 2, follow_symlinks=False)


@pytest.fixture
def add(workspace: Path) -> Callable[..., Path]:
    """`add("a", ended=HOURS_AGO, active=HOURS_AGO)`: the folder of a run; without `ended` it has no end."""

    def make(name: str, *, ended: float | None = None, active: float = 0.0, **digests: str) -> Path:
        begin_run(workspace, f"runs/{name}", run=name, owner="kfp", now=moment(active * HOUR), **digests)
        if ended is not None:
            end_run(workspace, f"runs/{name}", now=moment(ended * HOUR))
            active = ended
        output = workspace / "runs" / name / "output" / "checkpoint-1"
        output.mkdir(parents=True)
        (output / "weights").write_bytes(b"x")
        age(workspace / "runs" / name, active * HOUR)
        return workspace / "runs" / name

    return make


def prune(
    workspace: Path, keep: int = 0, current: str = "runs/current", live: tuple[str, ...] = (), asked: bool = True
) -> list[str]:
    return prune_runs(workspace, keep=keep, current=current, live=live, is_cluster_state_known=asked, now=NOW)


def left(workspace: Path) -> list[str]:
    return sorted(path.name for path in (workspace / "runs").glob("*"))


@pytest.mark.parametrize(
    ("text", "keep"), [("always", None), (" always ", None), ("keep=3", 3), ("keep=0", 0), ("12", 12), (" keep=1\n", 1)]
)
def test_retention_is_always_or_a_number(text: str, keep: int | None) -> None:
    assert parse_retention(text) == keep


@pytest.mark.parametrize(
    "text", ["", "never", "keep", "keep=", "keep=-1", "-1", "keep=1.5", "keep=x", "keep = 3", "1e3", "٣", "9" * 10]
)
def test_another_retention_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"retention: .* is invalid; expected always, or keep=N") as caught:
        parse_retention(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("keep", "kept"), [(0, ""), (1, "c"), (2, "bc"), (3, "abc"), (9, "abc")])
def test_the_newest_that_have_ended_are_kept_and_the_current_one_is_not_counted(
    workspace: Path, add: Callable[..., Path], keep: int, kept: str
) -> None:
    for name, ended in (("a", 5), ("b", 4), ("c", 3), ("current", 9)):
        add(name, ended=ended)
    assert sorted(prune(workspace, keep)) == sorted(set("abc") - set(kept))
    assert left(workspace) == [*kept, "current"]


def test_nothing_that_is_in_doubt_is_deleted(workspace: Path, add: Callable[..., Path], tmp_path: Path) -> None:
    add("ended", ended=100)
    add("live", ended=100)
    add("begun", active=1)
    add("broken", ended=100)
    (workspace / "runs/broken/run.json").write_bytes(b"{")
    (workspace / "runs/foreign").mkdir()
    (workspace / "runs/no name of a run!").mkdir()
    (workspace / "runs/file").write_bytes(b"")
    elsewhere = add("elsewhere", ended=100).rename(tmp_path / "elsewhere")
    (workspace / "runs/link").symlink_to(elsewhere)
    before = left(workspace)
    assert prune(workspace, live=("runs/live",)) == ["ended"]
    assert left(workspace) == [name for name in before if name != "ended"]
    assert (elsewhere / "run.json").exists()


def test_live_runs_may_be_given_by_their_names(workspace: Path, add: Callable[..., Path]) -> None:
    add("live", ended=100)
    assert prune(workspace, live=("live",), current="current") == []


def test_a_run_of_which_a_step_is_at_work_in_a_folder_below_is_live(workspace: Path, add: Callable[..., Path]) -> None:
    add("live", ended=100)
    assert prune(workspace, live=("runs/live/evaluation/x",)) == []


@pytest.mark.parametrize(
    ("active", "asked", "deleted"), [(25, True, ["killed"]), (23, True, []), (25, False, []), (1000, False, [])]
)
def test_a_run_without_an_end_goes_only_if_it_is_idle_and_the_cluster_was_asked(
    workspace: Path, add: Callable[..., Path], active: float, asked: bool, deleted: list[str]
) -> None:
    add("killed", active=active)
    assert prune(workspace, asked=asked) == deleted


def test_a_run_whose_files_still_change_is_not_idle(workspace: Path, add: Callable[..., Path]) -> None:
    killed = add("killed", active=1000)
    os.utime(killed / "output/checkpoint-1/weights", (NOW - HOUR,) * 2)
    assert prune(workspace) == []


def test_a_run_that_was_killed_takes_no_place_of_one_that_ended(workspace: Path, add: Callable[..., Path]) -> None:
    add("a", ended=200)
    add("b", ended=100)
    add("killed-early", active=300)
    add("killed-late", active=50)
    assert sorted(prune(workspace, keep=1)) == ["a", "killed-early"]
    assert left(workspace) == ["b", "killed-late"]


def test_a_run_that_comes_back_to_life_meanwhile_stays(
    workspace: Path, add: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, ended in (("ended", 100), ("killed", None)):
        add(name, ended=ended, active=100)
    real = module.lock_run

    def once_begun(*arguments: Any) -> Any:
        """Begin both runs again after they were selected, before one is locked."""
        for name in ("ended", "killed"):
            begin_run(workspace, f"runs/{name}", run=name, owner="kfp", now=moment(0))
        return real(*arguments)

    monkeypatch.setattr(module, "lock_run", once_begun)
    assert prune(workspace) == []
    assert left(workspace) == ["ended", "killed"]


@pytest.mark.parametrize("step", ["read_run", "_last_change"])
def test_two_runs_may_prune_at_the_same_time(
    workspace: Path, add: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The other one deletes a folder between two steps of this one's look at it."""
    for name in "abc":
        add(name, ended=2)
    real, removed = getattr(module, step), []

    def then_deleted(folder: Path) -> object:
        if folder.name == "b" and not removed:
            shutil.rmtree(folder)
            removed.append(folder)
        return real(folder)

    monkeypatch.setattr(module, step, then_deleted)
    assert sorted(prune(workspace)) == ["a", "c"]
    assert removed
    assert left(workspace) == []


def test_links_in_a_run_are_removed_and_not_followed(workspace: Path, add: Callable[..., Path], tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"")
    run = add("a", ended=1)
    (run / "output/link").symlink_to(precious)
    (run / "link").symlink_to(precious / "file")
    assert prune(workspace) == ["a"]
    assert (precious / "file").exists()


@pytest.mark.parametrize("place", ["runs", "datasets"])
def test_a_store_that_is_a_link_is_left_alone(
    workspace: Path, add: Callable[..., Path], finished: Finished, tmp_path: Path, place: str
) -> None:
    add("a", ended=1000)
    age(publish("dataset", *finished(), workspace), 1000 * HOUR)
    os.rename(workspace / place, tmp_path / "elsewhere")
    (workspace / place).symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.glob("elsewhere/*"))
    prune(workspace)
    assert sorted(tmp_path.glob("elsewhere/*")) == before


@pytest.mark.parametrize("name", ["..", "runs/..", "/", ""])
def test_a_current_run_that_is_none_is_refused_and_deletes_nothing(workspace: Path, add: Callable[..., Path], name: str) -> None:
    add("a", ended=1)
    with pytest.raises(WorkspaceError, match="is not a run folder"):
        prune(workspace, current=name)
    assert left(workspace) == ["a"]


def test_without_any_run_there_is_nothing_to_do(workspace: Path) -> None:
    assert prune(workspace) == []
    assert not workspace.exists()


def test_read_only_files_and_folders_go_too(workspace: Path, add: Callable[..., Path]) -> None:
    run = add("a", ended=1)
    (run / "output/checkpoint-1/weights").chmod(0o444)
    (run / "output/checkpoint-1").chmod(0o500)
    (run / "output/closed").mkdir(mode=0o000)
    assert prune(workspace) == ["a"]
    assert left(workspace) == []


def test_run_that_cannot_be_renamed_does_not_keep_others(
    workspace: Path, add: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add("a", ended=2)
    add("b", ended=1)
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if source.name == "b":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    assert prune(workspace) == ["a"]
    assert "cannot be deleted" in caplog.text


@pytest.mark.medium
def test_leftovers_of_a_killed_prune_are_removed_by_the_next(workspace: Path, add: Callable[..., Path]) -> None:
    code = """
import os, pathlib, shutil, signal, sys
from trainwright.workspace import prune_runs
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
prune_runs(pathlib.Path(sys.argv[1]), keep=0, current="runs/x", live=(), is_cluster_state_known=True, now=float(sys.argv[2]))
"""
    add("a", ended=1)
    done = subprocess.run([sys.executable, "-c", code, str(workspace), str(NOW)], check=False)
    assert done.returncode == -signal.SIGKILL
    (hidden,) = left(workspace)
    assert hidden.startswith(".deleted-a-")
    assert prune(workspace) == []
    assert left(workspace) == []


class TestPreparedInputs:
    @pytest.fixture
    def place(self, workspace: Path, finished: Finished, add: Callable[..., Path]) -> Path:
        """A prepared dataset that nobody has touched for long."""
        add("current")
        folder, receipt = finished()
        place = publish("dataset", folder, receipt, workspace)
        age(place, 25 * HOUR)
        return place

    def test_those_that_no_run_refers_to_go_with_their_entries(self, workspace: Path, place: Path) -> None:
        prune(workspace)
        assert not place.exists()
        assert list((workspace / "datasets/.index").iterdir()) == []

    @pytest.mark.parametrize("name", ["current", "a"])
    def test_those_that_a_remaining_run_refers_to_stay(
        self, workspace: Path, place: Path, add: Callable[..., Path], name: str
    ) -> None:
        if name == "current":
            begin_run(workspace, "runs/current", run="current", owner="kfp", dataset=f"sha256:{place.name}")
        else:
            add("a", ended=1, dataset=f"sha256:{place.name}")
        prune(workspace, keep=1)
        assert place.exists()

    @pytest.mark.parametrize("is_active", [True, False])
    def test_that_of_another_training_stays_while_the_run_is_active(self, workspace: Path, place: Path, is_active: bool) -> None:
        for digest in (f"sha256:{place.name}", f"sha256:{'0' * 64}"):
            begin_run(workspace, "runs/current", run="current", owner="kfp", dataset=digest)
        if not is_active:
            end_run(workspace, "runs/current")
        prune(workspace, keep=1)
        assert place.exists() is is_active

    def test_input_removed_concurrently_is_skipped(self, workspace: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = Path.is_dir

        def then_removed(path: Path) -> bool:
            found = real(path)
            if found and path == place:
                shutil.rmtree(path)
            return found

        monkeypatch.setattr(Path, "is_dir", then_removed)
        assert prune(workspace) == []
        assert not place.exists()

    def test_an_entry_that_another_run_removes_meanwhile_is_not_found(
        self, workspace: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (entry,) = (workspace / "datasets/.index").iterdir()
        real = Path.is_file

        def then_removed(path: Path) -> bool:
            found = real(path)
            if path == entry:
                path.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(Path, "is_file", then_removed)
        assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is None

    def test_those_of_a_run_that_is_deleted_go_with_it(self, workspace: Path, place: Path, add: Callable[..., Path]) -> None:
        add("a", ended=1, dataset=f"sha256:{place.name}")
        assert prune(workspace) == ["a"]
        assert not place.exists()

    def test_a_model_of_that_digest_is_another_thing(self, workspace: Path, place: Path, add: Callable[..., Path]) -> None:
        add("a", ended=1, model=f"sha256:{place.name}")
        prune(workspace, keep=1)
        assert not place.exists()

    def test_those_that_were_asked_for_lately_stay(self, workspace: Path, place: Path) -> None:
        assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is not None
        os.utime(place, (NOW - HOUR,) * 2)
        prune(workspace)
        assert place.exists()

    @pytest.mark.parametrize(("active", "stays"), [(1, True), (25, False)])
    def test_a_run_at_work_of_which_nothing_is_known_may_use_any(
        self, workspace: Path, place: Path, add: Callable[..., Path], active: float, stays: bool
    ) -> None:
        unknown = add("unknown", active=active)
        (unknown / "run.json").write_bytes(b"{")
        age(unknown, active * HOUR)
        prune(workspace)
        assert place.exists() is stays

    def test_files_of_others_beside_them_stay(self, workspace: Path, place: Path) -> None:
        (workspace / "datasets/mine").mkdir()
        (workspace / "datasets" / ("0" * 64)).symlink_to(workspace)
        age(workspace / "datasets", 1000 * HOUR)
        prune(workspace)
        assert (workspace / "datasets/mine").is_dir()
        assert (workspace / "datasets" / ("0" * 64)).is_symlink()

    @pytest.mark.parametrize(
        ("old", "held", "locks", "stays"),
        [
            (25, False, True, False),
            (1, False, True, True),
            (25, True, True, True),
            (25, False, False, False),
            (1, False, False, True),
        ],
    )
    def test_scratch_folders_of_killed_processes_go_once_they_are_old(
        self, workspace: Path, place: Path, monkeypatch: pytest.MonkeyPatch, locks: bool, old: float, held: bool, stays: bool
    ) -> None:
        scratch = workspace / "datasets/.0123456789ab-0123456789ab.0"
        (scratch / "work").mkdir(parents=True)
        (scratch / "lock").write_bytes(b"")
        age(scratch, old * HOUR)
        with open(scratch / "lock", "rb") as file:
            if held:
                fcntl.flock(file, fcntl.LOCK_EX)
            if not locks:

                def none(*_: object) -> None:
                    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

                monkeypatch.setattr(fcntl, "flock", none)
            prune(workspace)
        assert scratch.exists() is stays


RUNS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.tuples(st.sampled_from([None, 1, 2, 3, 30, 60]), st.sampled_from([1, 30, 60])), max_size=8
)


@pytest.mark.medium
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(runs=RUNS, keep=st.integers(0, 4), live=st.sets(st.sampled_from("abcdefgh")), asked=st.booleans())
def test_prune_deletes_only_finished_and_old_runs(
    workspace: Path, add: Callable[..., Path], runs: dict[str, tuple[int | None, int]], keep: int, live: set[str], asked: bool
) -> None:
    for path in (workspace / "runs").glob("*"):
        module.remove_tree(path)
    for name, (ended, active) in runs.items():
        add(name, ended=ended, active=active)
    deleted = set(prune(workspace, keep, current="a", live=tuple(live), asked=asked))
    assert set(left(workspace)) == set(runs) - deleted
    assert not deleted & (live | {"a"})
    ended = {name: time for name, (time, _) in runs.items() if time is not None and name not in live | {"a"}}
    assert len(ended.keys() - deleted) == min(keep, len(ended))
    assert all(ended[kept] <= ended[gone] for kept in ended.keys() - deleted for gone in ended.keys() & deleted)
    for name in deleted - ended.keys():
        assert asked
        assert runs[name][1] > 24
    assert set(prune(workspace, keep, current="a", live=tuple(live), asked=asked)) == set()
