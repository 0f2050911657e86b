"""Code from a git repository: a revision of it, fetched without questions and without a trace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainwright.jobs.code.code_package import BadCode, pack_code

pytestmark = pytest.mark.medium


def git(folder: Path, *words: str) -> str:
    identity = [
        "-c",
        "user.name=T",
        "-c",
        "user.email=t@example.com",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """main: `new`; its first commit: `old`, with the tag v1; the branch feature/x: `feature`."""
    folder = tmp_path / "upstream"
    (folder / "sub" / "deep").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", str(folder))
    (folder / "sub" / "deep" / "other.py").write_text("other")
    for text, after in (("old", ["tag", "v1"]), ("feature", ["branch", "feature/x"]), ("new", ["branch", "-f", "same"])):
        (folder / "train.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", text)
        git(folder, *after)
    return folder


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def left(tmp_path: Path) -> list[str]:
    return os.listdir(tmp_path / "tmp")


def content(tmp_path: Path, text: str) -> str:
    """The digest of a folder with that train.py."""
    folder = tmp_path / f"expected-{text}"
    (folder / "sub" / "deep").mkdir(parents=True, exist_ok=True)
    (folder / "sub" / "deep" / "other.py").write_text("other")
    (folder / "train.py").write_text(text)
    return pack_code(str(folder)).digest


@pytest.mark.parametrize(("revision", "text"), [("main", "new"), ("v1", "old"), ("feature/x", "feature"), ("HEAD", "new")])
def test_a_revision_is_its_files(tmp_path: Path, repository: Path, revision: str, text: str) -> None:
    code = pack_code(f"git+file://{repository}@{revision}")
    assert code.digest == content(tmp_path, text)
    assert code.source == f"file://{repository}@{git(repository, 'rev-parse', revision)}"
    assert left(tmp_path) == []


def test_a_subdirectory(tmp_path: Path, repository: Path) -> None:
    code = pack_code(f"git+file://{repository}@main#subdirectory=sub/deep")
    assert code.digest == pack_code(str(repository / "sub" / "deep")).digest
    for folder in ("nothing", "train.py", "..", "/etc", "sub/../..", ".git", "sub/../.git/refs"):
        with pytest.raises(BadCode, match="has no folder"):
            pack_code(f"git+file://{repository}@main#subdirectory={folder}")
    assert left(tmp_path) == []


@pytest.mark.parametrize("revision", ["nothing", "v2", "0" * 40, "abcdef0", "refs/heads/nothing"])
def test_a_missing_revision_is_git_s_message(tmp_path: Path, repository: Path, revision: str) -> None:
    with pytest.raises(BadCode, match=rf"^code: git (fetch|checkout) failed: .*{revision}"):
        pack_code(f"git+file://{repository}@{revision}")
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "code",
    [
        "git+file:///repo",
        "git+https://host/path",
        "git+ssh://git@host/path",
        "git+ssh://git@host",
        "git+http://host/path@main",
        "git+ext::sh -c touch@main",
        "git+file:///repo@--upload-pack=touch",
        "git+file:///repo@-x",
        "git+https://host/path@",
        "git+https://host/path@a b",
        "git+https://host/path@a#egg=x",
        "git+https://host/path@a@b@",
        "git+-oProxyCommand=x@main",
    ],
)
def test_other_forms_are_refused(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", None)
    with pytest.raises(BadCode, match="is not of the form git"):
        pack_code(code)
    assert left(tmp_path) == []


def test_an_option_in_the_place_of_a_revision_runs_nothing(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(BadCode):
        pack_code(f"git+file://{repository}@--upload-pack=touch${{IFS}}{tmp_path}/ran")
    assert not (tmp_path / "ran").exists()


def test_git_is_asked_without_prompts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []
    run = subprocess.run
    monkeypatch.setattr("subprocess.run", lambda *args, **more: (seen.append(more), run(*args, **more))[1])
    pack_code(f"git+file://{repository}@main")
    for more in seen:
        env = more["env"]
        assert isinstance(env, dict)
        assert (env["GIT_TERMINAL_PROMPT"], env["GIT_SSH_COMMAND"]) == ("0", "ssh -o BatchMode=yes")
        assert more["stdin"] == subprocess.DEVNULL
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i key")
    pack_code(f"git+file://{repository}@main")
    assert seen[-1]["env"]["GIT_SSH_COMMAND"] == "ssh -i key"  # type: ignore[index]


def test_a_repository_around_is_left_alone(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a hook of git, which sets these variables."""
    around = tmp_path / "around"
    git(tmp_path, "init", "--quiet", str(around))
    monkeypatch.setenv("GIT_DIR", str(around / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(around))
    monkeypatch.setenv("GIT_INDEX_FILE", str(around / ".git" / "index"))
    assert pack_code(f"git+file://{repository}@main").digest == content(tmp_path, "new")
    assert os.listdir(around) == [".git"]
    assert "origin" not in (around / ".git" / "config").read_text()
