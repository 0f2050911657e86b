"""The tier `wide`: every part has tests or a target, changes select parts, and CONTRIBUTING.md has the same table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiers
import wide_parts

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["docs/index.md"], []),
        (["operators/hook.py"], ["airflow"]),
        (["trainwright/cluster/connect.py"], ["clients", "faults"]),
        (["tests/workspace/test_full_pipeline.py"], ["data-tools"]),
        (["pipelines/full_pipeline/pipeline.py"], ["data-tools", "kfp"]),
        (["trainwright/uix/page.py"], []),
        (["trainwright/ui/page.py", "trainwright/tracking/targets.py"], ["browser", "registries"]),
    ],
)
def test_changed_files_select_their_parts(changed: Sequence[str], expected: Sequence[str]) -> None:
    assert wide_parts.parts_for(changed) == list(expected)


def test_parts_and_marks_name_the_same() -> None:
    marked = {part for module in (ROOT / "tests").rglob("test_*.py") for part in wide_parts.marked_parts(module)}
    assert marked == {name for name, part in wide_parts.PARTS.items() if name != "acceptance"}


def test_folders_that_ask_for_a_part_exist() -> None:
    patterns = [pattern for part in wide_parts.PARTS.values() for pattern in part.asked_for_by]
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []


def test_contributing_has_the_table_of_parts() -> None:
    assert wide_parts.table() in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiers.main(["wide", "--parts="]) == 4
    assert tiers.main(["wide", "--parts=trl", "--since=HEAD"]) == 4
    assert tiers.main(["wide", "--since=--help"]) == 4
    assert tiers.main(["wide", "--since=tests"]) == 4
    assert "tests names no commit" in capsys.readouterr().err
    assert tiers.main(["wide", "--parts=airflow,kubectl"]) == 4
    assert "no part is named kubectl; parts: acceptance, airflow" in capsys.readouterr().err
    assert tiers.never_runs({"wide"}, Path(__file__), ["kubectl"]).startswith("no part of the tier wide is named kubectl")
    assert tiers.never_runs({"wide"}, Path(__file__), [""]).startswith("the mark needs its part")


@pytest.mark.medium
def test_changes_are_those_since_the_branch_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the old name of what was moved, names of any letters, and nothing that others have changed."""
    monkeypatch.setattr(wide_parts, "ROOT", tmp_path)

    def git(*arguments: str) -> None:
        author = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True, env={**os.environ, **author})

    def commit(name: str) -> None:
        (tmp_path / name).write_text("content\n" * 9, "utf-8")
        git("add", "-A")
        git("commit", "-m", name)

    git("init", "-b", "main")
    commit("before")
    git("checkout", "-b", "mine")
    git("mv", "before", "after")
    commit('ü " x.py')
    git("checkout", "main")
    commit("of others")
    git("checkout", "mine")
    (tmp_path / "new").touch()
    assert sorted(wide_parts.changed_since("main")) == ["after", "before", "new", 'ü " x.py']
    (tmp_path / ".git/index").write_bytes(b"broken")
    with pytest.raises(subprocess.CalledProcessError):  # and not: no part is asked for
        wide_parts.changed_since("main")


def test_chosen_parts_run_their_tests_then_their_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(tiers, "run_tests", lambda selected, names, more: ran.append((selected, names, more)) or 0)
    monkeypatch.setattr(tiers.subprocess, "run", lambda command, **_: ran.append(command) or type("Done", (), {"returncode": 0}))
    assert tiers.main(["wide", "--parts=lm-eval runtimes", "-x"]) == 0
    assert tiers.main(["wide", "--parts=runtimes", "--collect-only"]) == 0
    assert ran == [
        ("wide(part='lm-eval') or wide(part='runtimes')", ["wide"], ["-x"]),
        ["make", "runtimes", "ARGS="],
        ("wide(part='runtimes')", ["wide"], ["--collect-only"]),
    ]
