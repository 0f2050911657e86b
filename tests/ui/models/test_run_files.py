"""Files of a run are read only inside its folder, through no link, with a limit, and never as HTML."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import Forbidden, NotFound
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.ui.models.foreign_json import MAX_SHOWN, read_inside, show_file
from trainwright.workspace.layout import WorkspaceError


@pytest.fixture
def run(workspace: Path) -> Path:
    folder = workspace / "runs" / "r1"
    folder.mkdir()
    (folder / "dataset-report.md").write_text("# Report\n<script>alert(1)</script>")
    return folder


def test_markdown_is_returned_as_text(workspace: Path, run: Path) -> None:
    shown = show_file(workspace, "r1", "dataset-report.md")
    assert shown["text"] == "# Report\n<script>alert(1)</script>"
    assert shown["cut"] is False


@pytest.mark.parametrize(
    "path", ["dataset-report.html", "output/model.safetensors", ".hidden.json", "x.svg", "a" * 2_000 + ".md"]
)
def test_other_kinds_of_files_are_forbidden(workspace: Path, run: Path, path: str) -> None:
    with pytest.raises(Forbidden):
        show_file(workspace, "r1", path)


def test_a_missing_file_is_not_found(workspace: Path, run: Path) -> None:
    for path in ("none.md", "dataset-report.md/none.md", "none/none.md"):
        with pytest.raises(NotFound):
            show_file(workspace, "r1", path)


@pytest.mark.parametrize("path", ["../../secret.md", "/etc/passwd.md", "a/../../r2/x.md", "", "a//x.md", "./x.md", "a\0.md"])
def test_paths_out_of_the_folder_are_refused(workspace: Path, run: Path, path: str) -> None:
    (workspace / "secret.md").write_text("secret")
    with pytest.raises((UnsafeFile, Forbidden)):
        show_file(workspace, "r1", path)


@pytest.mark.parametrize("name", ["../r2", "..", "", "a/b", "r1\0"])
def test_invalid_names_of_runs_are_refused(workspace: Path, run: Path, name: str) -> None:
    with pytest.raises(WorkspaceError):
        show_file(workspace, name, "dataset-report.md")


def test_links_are_refused_even_inside_the_folder(workspace: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (run / "out.md").symlink_to(tmp_path / "secret.md")
    (run / "in.md").symlink_to("dataset-report.md")
    (run / "folder").symlink_to(tmp_path)
    (workspace / "runs" / "linked").symlink_to(run)
    for name, path in (("r1", "out.md"), ("r1", "in.md"), ("r1", "folder/secret.md"), ("linked", "dataset-report.md")):
        with pytest.raises(UnsafeFile):
            show_file(workspace, name, path)


def test_pipes_and_folders_are_no_files(workspace: Path, run: Path) -> None:
    os.mkfifo(run / "pipe.md")
    (run / "folder.md").mkdir()
    with pytest.raises(UnsafeFile):
        show_file(workspace, "r1", "pipe.md")
    with pytest.raises(NotFound):
        show_file(workspace, "r1", "folder.md")


def test_a_large_file_is_cut(workspace: Path, run: Path) -> None:
    (run / "large.md").write_bytes(b"x" * (MAX_SHOWN + 10))
    shown = show_file(workspace, "r1", "large.md")
    assert (len(shown["text"]), shown["cut"], shown["bytes"]) == (MAX_SHOWN, True, MAX_SHOWN + 10)


def test_invalid_utf8_is_replaced(workspace: Path, run: Path) -> None:
    (run / "latin.md").write_bytes(b"caf\xe9")
    assert show_file(workspace, "r1", "latin.md")["text"] == "caf\ufffd"


@given(path=st.text(st.sampled_from("ab./\\\0%"), max_size=12))
def test_no_path_reads_anything_outside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.getbasetemp() / "paths"
    inside = base / "runs" / "r1"
    inside.mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        (base / name).write_text("outside")
        (base / "runs" / name).write_text("outside")
    try:
        content, _ = read_inside(base, "r1", path, 100)
    except (StorageError, WorkspaceError):
        return
    assert content is None
