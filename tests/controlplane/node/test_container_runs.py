"""The runs of a container: readers of logs and sessions look for the latest one at any moment, also while one is being started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.controlplane.node import container
from trainwright.controlplane.node.container import containers_in, latest_run, run_of
from trainwright.controlplane.node.container_context import message_file, with_message
from trainwright.controlplane.node.lifecycle.container_state import Termination


@pytest.mark.medium
def test_a_reader_does_not_disturb_a_run_that_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    really = os.open

    def open_while_read(*given: Any, **named: Any) -> int:
        patch.setattr(container.os, "open", really)  # for the reader itself
        found.append(latest_run("main", tmp_path))
        patch.setattr(container.os, "open", open_while_read)
        return really(*given, **named)

    run = run_of("main", 0, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(container.os, "open", open_while_read)
        run.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path)
    assert found
    assert set(found) <= {None, run}
    ended = eventually(run.termination, 20)
    assert (ended.code, ended.reason) == (0, "")
    assert latest_run("main", tmp_path) == run


@pytest.mark.medium
def test_a_start_replaces_what_an_interrupted_one_has_left(tmp_path: Path) -> None:
    run = run_of("main", 0, tmp_path)
    run.folder.mkdir(parents=True)
    (run.folder / "spec.json").write_text('{"argv": ["fal', "utf-8")
    assert latest_run("main", tmp_path) is None
    run.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path)
    assert eventually(run.termination, 20).code == 0


def test_a_pod_whose_folder_is_gone_has_no_runs(tmp_path: Path) -> None:
    assert latest_run("main", tmp_path / "gone") is None
    assert containers_in(tmp_path / "gone") == []


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "missing", "file"])
def test_termination_message_is_read_from_a_regular_file_only(tmp_path: Path, kind: str) -> None:
    """A container without isolation can replace the file by anything."""
    run = run_of("main", 0, tmp_path)
    path = message_file(run)
    path.parent.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "secret")
        case "file":
            path.write_text("the end")
    ended = with_message({"name": "main"}, run, Termination(0, 1.0, 0.0))
    assert ended.message == ("the end" if kind == "file" else "")
