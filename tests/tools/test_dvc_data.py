"""Data is pulled by a real DVC: from repositories, and from sources that it makes versions of in the workspace."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.s3_server import S3Server
from support.waiting import eventually

from trainwright.tools import BadToolInput, ToolFailed
from trainwright.tools.dvc_data import dvc_requirements, pull_dvc_data
from trainwright.workspace.receipt import read_receipt

Build = Callable[[list[str], str], Path]

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "source: required without repo"),
        ({"source": "relative/path"}, "not an absolute path"),
        ({"source": "file://host/x"}, "not an absolute path"),
        ({"source": "/x", "path": "y"}, "only with repo"),
        ({"repo": "/x"}, "path: required with repo"),
        ({"repo": "/x", "path": "y", "source": "/z"}, "either a repository"),
        ({"md5": "short"}, "not an MD5"),
        ({"source": "https://me:pw@example.com/x"}, r"'https://\*\*\*@example.com/x' contains a user"),
    ],
)
def test_options_that_say_nothing_are_refused_before_dvc_is_installed(
    tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(BadToolInput, match=expected):
        pull_dvc_data(tmp_path, **options)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def dvc(real_tools: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program dvc of the environment that is used; the home is an empty one, where nothing must be written."""
    python = real_tools(dvc_requirements(), "dvc")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    return python.with_name("dvc")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "train ä.jsonl").write_text('{"text": "größe"}\n', "utf-8")
    (folder / "sub" / "empty.jsonl").touch()
    return folder


@pytest.fixture
def repository(dvc: Path, tmp_path: Path) -> Path:
    """A Git repository with DVC and two commits; v1 is a tag of the first."""
    repo, remote = tmp_path / "repo", tmp_path / "remote"
    (repo / "data").mkdir(parents=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]

    def run(*command: str) -> None:
        subprocess.run(command, cwd=repo, check=True, capture_output=True)

    run(*git, "init", "-q", "-b", "main")
    run(str(dvc), "init", "-q")
    run(str(dvc), "remote", "add", "-d", "store", str(remote))
    for version in (1, 2):
        (repo / "data" / "rows.jsonl").write_text(f'{{"version": {version}}}\n')
        (repo / "plain.jsonl").write_text(f'{{"plain": {version}}}\n')
        run(str(dvc), "add", "-q", "data")
        run(str(dvc), "push", "-q")
        run(*git, "add", "-A")
        run(*git, "commit", "-q", "-m", f"version {version}")
        if version == 1:
            run(*git, "tag", "v1")
    (repo / "data" / "rows.jsonl").write_text("not committed")
    return repo


def texts(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_source_becomes_a_version_once(dvc: Path, source: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    first = pull_dvc_data(tmp_path / "w", source=str(source), on_line=lines.append)
    assert texts(first.folder) == {"train ä.jsonl": '{"text": "größe"}\n', "sub/empty.jsonl": ""}
    assert first.md5.endswith(".dir")
    assert (first.files, first.size) == (2, (source / "train ä.jsonl").stat().st_size)
    assert read_receipt(first.folder) == first.receipt
    before = (first.folder / "train ä.jsonl").stat()
    del lines[:]
    second = pull_dvc_data(tmp_path / "w", source=source.as_uri(), on_line=lines.append)
    assert second == first
    assert not lines
    assert (second.folder / "train ä.jsonl").stat().st_ino == before.st_ino
    assert not list((tmp_path / "home").rglob("*.*"))


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_changed_data_is_another_version_and_the_first_can_be_had_again(dvc: Path, source: Path, tmp_path: Path) -> None:
    first = pull_dvc_data(tmp_path / "w", source=str(source))
    (source / "train ä.jsonl").write_text('{"text": "changed"}\n')
    second = pull_dvc_data(tmp_path / "w", source=str(source))
    assert second.digest != first.digest
    assert second.md5 != first.md5
    shutil.rmtree(first.folder)
    shutil.rmtree(source)
    again = pull_dvc_data(tmp_path / "w", md5=first.md5)
    assert (again.digest, again.folder) == (first.digest, first.folder)
    with pytest.raises(BadToolInput, match=f"has no version {'0' * 32}; known: "):
        pull_dvc_data(tmp_path / "w", md5="0" * 32)


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_changed_copy_is_fetched_again(dvc: Path, source: Path, tmp_path: Path) -> None:
    first = pull_dvc_data(tmp_path / "w", source=str(source))
    changed = first.folder / "train ä.jsonl"
    changed.chmod(0o644)
    changed.write_text("tampered")
    again = pull_dvc_data(tmp_path / "w", source=str(source))
    assert again.digest == first.digest
    assert texts(again.folder)["train ä.jsonl"] == '{"text": "größe"}\n'


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_two_runs_at_once_make_the_same(dvc: Path, source: Path, tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(pull_dvc_data(tmp_path / "w", source=str(source)).digest)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert len(set(found)) == 1
    assert not [path for path in (tmp_path / "w/dvc/data").iterdir() if path.name.startswith(".")]


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_killed_pull_is_completed_by_the_next(dvc: Path, source: Path, tmp_path: Path) -> None:
    for number in range(3000):
        (source / f"{number}.jsonl").write_text(f'{{"text": "{number}"}}\n' * 50)
    code = (
        "import sys; from pathlib import Path; from trainwright.tools.dvc_data import pull_dvc_data; "
        "pull_dvc_data(Path(sys.argv[1]), source=sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "w"), str(source)]
    for began in ("dvc/storage/files", "dvc/data/.*/work/data/1*.jsonl"):
        process = subprocess.Popen(command, start_new_session=True)
        eventually(lambda pattern=began: any((tmp_path / "w").glob(pattern)), 120, began)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pulled = pull_dvc_data(tmp_path / "w", source=str(source))
    assert pulled.files == 3002
    assert not [path for path in (tmp_path / "w/dvc/data").iterdir() if path.name.startswith(".")]


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_web_address_becomes_a_version(dvc: Path, source: Path, tmp_path: Path, web: str) -> None:
    pulled = pull_dvc_data(tmp_path / "w", source=f"{web}/train%20%C3%A4.jsonl")
    assert list(texts(pulled.folder).values()) == ['{"text": "größe"}\n']
    with pytest.raises((BadToolInput, ToolFailed), match=r"nothing\.jsonl"):
        pull_dvc_data(tmp_path / "w", source=f"{web}/nothing.jsonl")


@pytest.fixture
def web(source: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(source))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_repository_gives_the_revision_that_is_asked_for(repository: Path, tmp_path: Path) -> None:
    latest = pull_dvc_data(tmp_path / "w", repo=str(repository), path="data")
    first = pull_dvc_data(tmp_path / "w", repo=str(repository), path="data", rev="v1")
    assert texts(latest.folder) == {"rows.jsonl": '{"version": 2}\n'}
    assert texts(first.folder) == {"rows.jsonl": '{"version": 1}\n'}
    head = subprocess.run(["git", "rev-parse", "HEAD", "v1"], cwd=repository, capture_output=True, text=True, check=True)
    assert [latest.revision, first.revision] == head.stdout.split()
    assert (
        first.md5
        in subprocess.run(["git", "show", "v1:data.dvc"], cwd=repository, capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_repository_by_its_address_is_cloned(repository: Path, tmp_path: Path) -> None:
    pulled = pull_dvc_data(tmp_path / "w", repo=f"file://{repository}", path="data/rows.jsonl", rev="v1")
    assert texts(pulled.folder) == {"rows.jsonl": '{"version": 1}\n'}
    plain = pull_dvc_data(tmp_path / "w", repo=f"file://{repository}", path="plain.jsonl")
    assert (texts(plain.folder), plain.md5) == ({"plain.jsonl": '{"plain": 2}\n'}, "")


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"path": "nothing"}, BadToolInput, r"'nothing' is not in the repository; at its top there are .*plain\.jsonl"),
        ({"path": "data", "rev": "nothing"}, BadToolInput, "unknown Git revision 'nothing'"),
        ({"path": "data", "remote": "nothing"}, BadToolInput, "nothing"),
        ({"path": "data", "repo": "https://me:pw12345@127.0.0.1:1/x.git"}, ToolFailed, "Connection refused"),
    ],
)
def test_missing_data_of_a_repository_is_reported(
    repository: Path, tmp_path: Path, options: dict[str, str], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected) as caught:
        pull_dvc_data(tmp_path / "w", **{"repo": str(repository), **options})
    assert "pw12345" not in str(caught.value)


def commit(repository: Path) -> None:
    for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=repository, check=True)


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        "credentialpath = ../aws",
        "profile = evil",
        "configpath = /etc/x",
        "keyfile = /root/.ssh/id_rsa",
        "bearer_token_command = touch ran",
        "cert_path = /etc/x",
        "ssl_verify = false",
        "gdrive_service_account_json_file_path = /etc/x",
        "[cache]\n    dir = /tmp/cache",
        "[state]\n    dir = /tmp/state",
    ],
)
def test_settings_of_a_repository_name_nothing_of_this_machine(repository: Path, tmp_path: Path, settings: str) -> None:
    urls = {
        "bearer": "webdavs://h/x",
        "cert": "webdavs://h/x",
        "keyfile": "ssh://h/x",
        "gdrive": "gdrive://x/y",
        "[": str(tmp_path),
    }
    url = next((url for key, url in urls.items() if settings.startswith(key)), "s3://bucket/x")
    config = f"[core]\n    remote = store\n['remote \"store\"']\n    url = {url}\n    {settings}\n"
    (repository / ".dvc" / "config").write_text(config, "utf-8")
    commit(repository)
    with pytest.raises(BadToolInput, match="which no repository may"):
        pull_dvc_data(tmp_path / "w", repo=str(repository), path="data")


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["{secret}", "../secret", "file://{secret}", "https://127.0.0.1:1/x", "s3://bucket/x", "repository"]
)
def test_imports_from_outside_of_a_repository_are_refused(repository: Path, tmp_path: Path, source: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    digest = hashlib.md5(b"SECRET", usedforsecurity=False).hexdigest()
    dep = (
        f"path: {source.format(secret=secret)}" if source != "repository" else f"path: x\n  repo: {{url: 'file://{repository}'}}"
    )
    stage = f"md5: '{'0' * 32}'\nfrozen: true\ndeps:\n- {dep}\n  hash: md5\n  size: 6\n  md5: {digest}\n"
    (repository / "got.dvc").write_text(f"{stage}outs:\n- hash: md5\n  path: got\n", "utf-8")
    commit(repository)
    for repo in (str(repository), f"file://{repository}"):
        with pytest.raises(BadToolInput, match="import from outside of the repository"):
            pull_dvc_data(tmp_path / "w", repo=repo, path="got")
    assert pull_dvc_data(tmp_path / "w", repo=str(repository), path="data").files == 1


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
@pytest.mark.parametrize("path", ["file", "folder", "rows/file"])
def test_links_out_of_a_folder_without_git_are_refused(dvc: Path, tmp_path: Path, path: str) -> None:
    plain, secret = tmp_path / "plain", tmp_path / "host"
    (plain / ".dvc").mkdir(parents=True)
    (plain / ".dvc" / "config").write_text("[core]\n    no_scm = True\n", "utf-8")
    (plain / "rows").mkdir()
    secret.mkdir()
    (secret / "file").write_text("SECRET")
    for name, target in (("file", secret / "file"), ("folder", secret), ("rows/file", secret / "file")):
        (plain / name).symlink_to(target)
    for wanted in {path, path.partition("/")[0]}:
        with pytest.raises(BadToolInput, match="leads out of the repository by a symbolic link"):
            pull_dvc_data(tmp_path / "w", repo=str(plain), path=wanted)


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_data_that_was_never_pushed_is_a_failure_with_advice(repository: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "remote")
    with pytest.raises(ToolFailed, match="has it been pushed"):
        pull_dvc_data(tmp_path / "w", repo=f"file://{repository}", path="data")


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_source_that_does_not_exist_is_bad_input(dvc: Path, tmp_path: Path) -> None:
    with pytest.raises(BadToolInput, match="no such file or folder"):
        pull_dvc_data(tmp_path / "w", source="/no/such/folder")


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_source_in_an_object_store_is_read_again_only_if_it_has_changed(
    dvc: Path, real_tools: Build, s3: S3Server, s3_folder: str, tmp_path: Path
) -> None:
    real_tools(dvc_requirements("s3"), "dvc")
    _, _, bucket, prefix = s3_folder.rstrip("/").split("/", 3)

    def upload(text: str) -> None:
        s3.client().put_object(Bucket=bucket, Key=f"{prefix}/rows/a.jsonl", Body=text.encode())

    lines: list[str] = []
    upload('{"n": 1}\n')
    first = pull_dvc_data(tmp_path / "w", source=f"{s3_folder.rstrip('/')}/rows", on_line=lines.append)
    assert texts(first.folder) == {"a.jsonl": '{"n": 1}\n'}
    assert "a new version of rows" in lines
    del lines[:]
    assert pull_dvc_data(tmp_path / "w", source=f"{s3_folder.rstrip('/')}/rows", on_line=lines.append) == first
    assert not lines
    upload('{"n": 2}\n')
    assert texts(pull_dvc_data(tmp_path / "w", source=f"{s3_folder.rstrip('/')}/rows").folder) == {"a.jsonl": '{"n": 2}\n'}


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_the_library_for_the_remote_of_a_repository_is_found_out(
    repository: Path, real_tools: Build, s3: S3Server, s3_folder: str, tmp_path: Path
) -> None:
    """Only the settings in the repository say that its data is in S3."""
    dvc = real_tools(dvc_requirements("s3"), "dvc").with_name("dvc")
    for command in (
        [dvc, "remote", "add", "-f", "-d", "store", s3_folder],
        [dvc, "remote", "modify", "store", "endpointurl", s3.endpoint],
        [dvc, "checkout", "-f", "-q"],
        [dvc, "push", "-q"],
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-a", "-m", "store"],
    ):
        subprocess.run(command, cwd=repository, check=True, capture_output=True)
    shutil.rmtree(repository / ".dvc" / "cache")
    pulled = pull_dvc_data(tmp_path / "w", repo=f"file://{repository}", path="data")
    assert texts(pulled.folder) == {"rows.jsonl": '{"version": 2}\n'}
