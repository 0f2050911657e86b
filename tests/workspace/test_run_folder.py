"""Names of folders on a workspace: safe as paths, the same at every retry, and never shared by two runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainwright.jobs.state.run_folder import label_value
from trainwright.workspace import WorkspaceError, prepared_folder, run_folder
from trainwright.workspace.layout import containing_run, run_name, run_path, step_path

SAFE = re.compile(r"runs/[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
RUN = st.one_of(
    st.text(max_size=80),
    st.text(st.characters(), max_size=30),
    st.from_regex(r"[a-zA-Z0-9.+:\[\]/ _-]{0,100}", fullmatch=True),
    st.from_regex(r"[ab]{0,3}-[0-9a-f]{16}", fullmatch=True),
)
STEP = st.tuples(RUN, st.integers(-1, 12))


@pytest.mark.medium
@given(STEP)
@example(("", -1))
@example((".", -1))
@example(("..", -1))
@example(("../../etc", -1))
@example(("\ud83d", -1))
@example(("x" * 10_000, 3))
@example(("manual__2026-11-22T10:00:00+00:00", -1))
def test_a_folder_is_a_safe_name_below_runs(step: tuple[str, int]) -> None:
    folder = run_folder(*step)
    assert SAFE.fullmatch(folder)
    assert folder == run_folder(*step)
    assert run_path(Path("/w"), folder) == Path("/w") / folder


@pytest.mark.medium
@given(st.lists(STEP, unique=True, min_size=2, max_size=30))
@example([("a", 1), ("a.1", -1), ("a[1]", -1), ("a-1", -1), ("a 1", -1)])
@example([("Run", -1), ("run", -1), ("RUN", -1)])
@example([("ä", -1), ("a\u0308", -1), ("ö", -1), ("-", -1), ("", -1)])
@example([("x" * 64 + "a", -1), ("x" * 64 + "b", -1)])
@example([("\ud83d\ude00", -1), ("\U0001f600", -1)])
@example([("1/a", -1), ("a", 1)])
def test_two_runs_never_share_a_folder(steps: list[tuple[str, int]]) -> None:
    folders = {run_folder(*step) for step in steps}
    assert len(folders) == len(steps)
    assert len({folder.casefold() for folder in folders}) == len(steps)


@pytest.mark.medium
@given(STEP)
def test_a_run_that_is_called_like_the_folder_of_another_gets_one_of_its_own(step: tuple[str, int]) -> None:
    folder = run_folder(*step)
    name = run_name(folder)
    if (name, -1) != step:
        assert run_folder(name) != folder


def test_label_values_alone_would_not_do() -> None:
    """Why folders have rules of their own."""
    assert label_value("") == ""
    assert label_value(label_value("a b")) == label_value("a b")
    assert label_value("Run").lower() == label_value("run").lower()


@pytest.mark.parametrize(
    ("run", "map_index", "folder"),
    [
        ("nightly", -1, r"runs/nightly"),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", -1, r"runs/0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("manual__2026-11-22T10:00:00+00:00", -1, r"runs/manual__2026-11-22t10-00-00-00-00-[0-9a-f]{16}"),
        ("nightly", 3, r"runs/nightly-3-[0-9a-f]{16}"),
        ("", -1, r"runs/run-[0-9a-f]{16}"),
        ("Über", -1, r"runs/ber-[0-9a-f]{16}"),
    ],
)
def test_people_recognise_their_runs(run: str, map_index: int, folder: str) -> None:
    assert re.fullmatch(folder, run_folder(run, map_index))


def test_prepared_inputs_are_named_by_their_digest() -> None:
    assert prepared_folder("dataset", "sha256:" + "a1" * 32) == "datasets/" + "a1" * 32
    assert prepared_folder("model", "sha256:" + "0" * 64) == "models/" + "0" * 64


@pytest.mark.parametrize(
    "digest",
    ["", "a" * 64, "sha256:", "sha256:" + "A" * 64, "sha256:" + "a" * 63, "sha256:../" + "a" * 61, "sha256:" + "a" * 64 + "\n"],
)
def test_a_digest_that_is_none_is_named(digest: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(digest))):
        prepared_folder("dataset", digest)


def test_only_datasets_and_models_are_prepared() -> None:
    with pytest.raises(ValueError, match="'run' cannot be prepared"):
        prepared_folder("run", "sha256:" + "a" * 64)  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", ["", "runs/", "runs/..", "runs/a/b", "/runs/a", "runs/.a", "../a", "runs/a\n"])
def test_invalid_run_folders_are_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(WorkspaceError, match="is not a run folder"):
        run_path(tmp_path, folder)


def test_a_link_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").symlink_to("/")
    with pytest.raises(WorkspaceError, match="is a link"):
        run_path(tmp_path, "runs/a")


def test_a_step_may_have_a_folder_below_that_of_its_run(tmp_path: Path) -> None:
    assert step_path(tmp_path, "runs/a/evaluation/x") == tmp_path / "runs/a/evaluation/x"
    assert [containing_run(folder) for folder in ("a", "runs/a", "runs/a/evaluation/x")] == ["a"] * 3
    with pytest.raises(WorkspaceError, match="is not a run folder"):
        run_path(tmp_path, "runs/a/evaluation")
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/evaluation").symlink_to("/")
    with pytest.raises(WorkspaceError, match="runs/a/evaluation is a link"):
        step_path(tmp_path, "runs/a/evaluation/x")


@pytest.mark.parametrize("folder", ["runs/a/..", "runs/a/../b", "runs/a//b", "runs/a/.b", "runs/a/", "a/b", "/runs/a"])
def test_a_step_folder_leads_nowhere_else(tmp_path: Path, folder: str) -> None:
    with pytest.raises(WorkspaceError, match="is not a run folder"):
        step_path(tmp_path, folder)
