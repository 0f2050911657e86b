"""Archives of recordings: what is packed is unpacked again, equal recordings give equal bytes, and two states can be compared."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import recording_archives
from hypothesis import given
from hypothesis import strategies as st
from recording_archives import (
    ARCHIVES,
    HEADER,
    RecordingsError,
    archive_of,
    archive_texts,
    case_of,
    compress,
    main,
    pack,
    read,
    read_archive,
    recordings_of,
    unpack,
)

TEXTS = {
    "newline": b"a: 1\nb: 2\n",
    "no-newline": b"a: 1",
    "empty": b"",
    "blank-lines": b"\n\n",
    "starts-blank": b"\na",
    "crlf": b"a: 1\r\nb: 2\r\n",
    "carriage-return": b"a\rb",
    "unicode": "ä: 漢字 \u2028 \u0085 \ufeff\n".encode(),
    "controls": b"\x00\x0b\x0c\x1b[1m\n",
    "like-a-header": b"--- # a comment\n ---\n# file: x\n x" + HEADER + b"y\n",
    "documents": b"---\na: 1\n---\nb: 2\n...\n",
}
PLAIN = {
    "kubelet/cases/end-clean/case.yaml": b"about: a clean end\n",
    "kubelet/cases/end-clean/observed.yaml": b"phase: Succeeded\nexit: 0\n",
    "kubelet/cases/end-error/case.yaml": b"about: an error\n",
    "kubelet/cases/net/case.yaml": b"about: a name\n",
    "wire/http/get-pod.yaml": b"status: 200\n",
    "status-server/exchanges.yaml": b"[]\n",
}


@pytest.fixture(scope="module", autouse=True)
def _neither_shared_recordings_nor_settings_of_git() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("GIT_") or name == "TRAINWRIGHT_SHARED"]:
            environment.delenv(name)
        environment.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        environment.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits: one without files, tagged `before`, and one whose archives hold the plain files."""
    root = tmp_path_factory.mktemp("committed")
    git(root, "init", "-q", "--template=")
    git(root, "commit", "-q", "--allow-empty", "-m", "before")
    git(root, "tag", "before")
    packed(PLAIN, root / "tests/recordings")
    commit(root)
    return root


@pytest.fixture
def checkout(tmp_path: Path, committed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the repository, which takes the place of this one."""
    root = tmp_path / "checkout"
    shutil.copytree(committed, root)
    monkeypatch.setattr(recording_archives, "ROOT", root)
    monkeypatch.setattr(recording_archives, "ARCHIVES", root / "tests/recordings")
    unpack(PLAIN, tmp_path / "unpacked")
    return root


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "state")


def git(root: Path, *command: str) -> None:
    subprocess.run(["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.com", *command], check=True)


def packed(files: dict[str, bytes], folder: Path) -> Path:
    """A folder with the archives of these files."""
    for name, text in archive_texts(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(compress(text))
    return folder


def test_every_text_survives_packing_and_unpacking(tmp_path: Path) -> None:
    source = {
        f"kubelet/cases/end-{name}/{file}": text for name, text in TEXTS.items() for file in ("case.yaml", "plain", "x.json")
    }
    unpack(source, tmp_path / "source")
    pack(tmp_path / "source", tmp_path / "archives")
    assert [path.name for path in (tmp_path / "archives").rglob("*.gz")] == ["end.yaml.gz"]
    unpack(read(str(tmp_path / "archives")), tmp_path / "result")
    assert {path: (tmp_path / "result" / path).read_bytes() for path in source} == source
    assert sum(path.is_file() for path in (tmp_path / "result").rglob("*")) == len(source)


def test_compressed_members_are_packed_as_text(tmp_path: Path) -> None:
    member = tmp_path / "source/failures/cases/oom/stream.jsonl.gz"
    member.parent.mkdir(parents=True)
    with gzip.GzipFile(member, "wb", mtime=7) as file:
        file.write(b'{"a": 1}\n')
    pack(tmp_path / "source", tmp_path)
    archive = tmp_path / "failures/cases/oom.yaml.gz"
    assert gzip.decompress(archive.read_bytes()) == HEADER + b'failures/cases/oom/stream.jsonl.gz\n{"a": 1}\n'
    unpack(read(str(archive)), tmp_path / "first")
    unpack(read(str(archive)), tmp_path / "second")
    first, second = (tmp_path / name / "failures/cases/oom/stream.jsonl.gz" for name in ("first", "second"))
    assert gzip.decompress(first.read_bytes()) == b'{"a": 1}\n'
    assert first.read_bytes() == second.read_bytes()


_PARTS = st.text("ab-.é", min_size=1, max_size=4).filter(lambda part: part not in (".", ".."))
_LINES = st.sampled_from([b"", b"\n", b"\r\n", b"a", b"--- ", HEADER[:-2], " ü".encode(), b" (no newline at its end)", b"---\n"])


@given(st.dictionaries(_PARTS.map(lambda part: f"wire/http/a-{part}/x"), st.lists(_LINES, max_size=6).map(b"".join), min_size=1))
def test_property_archives_are_read_as_written(files: dict[str, bytes]) -> None:
    texts = archive_texts(files)
    assert {path: content for text in texts.values() for path, content in read_archive(compress(text), "").items()} == files


@given(st.binary(max_size=60) | st.lists(_LINES | st.just(HEADER + b"wire/http/a.yaml\n"), max_size=6).map(b"".join))
def test_property_a_text_is_refused_or_canonical(text: bytes) -> None:
    with contextlib.suppress(RecordingsError):
        assert recording_archives._text(read_archive(compress(text), "an archive")) == text


@pytest.mark.parametrize(
    ("path", "case", "archive"),
    [
        ("kubelet/cases/end-clean/case.yaml", "kubelet/cases/end-clean", "kubelet/cases/end.yaml.gz"),
        ("kubelet/cases/deadline/deeper/x", "kubelet/cases/deadline", "kubelet/cases/deadline.yaml.gz"),
        ("wire/http/get-pod.yaml", "wire/http/get-pod", "wire/http/get.yaml.gz"),
        ("wire/kubectl/diff.yaml", "wire/kubectl/diff", "wire/kubectl/diff.yaml.gz"),
        ("materialize/index.tsv", "materialize/index.tsv", "materialize/index.yaml.gz"),
    ],
)
def test_files_of_a_case_share_an_archive(path: str, case: str, archive: str) -> None:
    assert (case_of(path), archive_of(path)) == (case, archive)


def test_packing_ignores_times_and_order(tmp_path: Path) -> None:
    unpack(PLAIN, tmp_path / "one")
    unpack(dict(reversed(PLAIN.items())), tmp_path / "other")
    for path in (tmp_path / "other").rglob("*"):
        os.utime(path, (1, 1))
    pack(tmp_path / "one", tmp_path / "archives")
    pack(tmp_path / "other", tmp_path / "others")
    archives = {archive_of(path) for path in PLAIN}
    assert all((tmp_path / "archives" / name).read_bytes() == (tmp_path / "others" / name).read_bytes() for name in archives)


def test_packing_writes_changed_archives_only(tmp_path: Path) -> None:
    unpack(PLAIN, tmp_path / "source")
    pack(tmp_path / "source", tmp_path)
    same, removed, other = (
        tmp_path / name for name in ("kubelet/cases/end.yaml.gz", "kubelet/cases/net.yaml.gz", "wire/http/get.yaml.gz")
    )
    by_another_zlib = compress(gzip.decompress(same.read_bytes()), level=1)
    same.write_bytes(by_another_zlib)
    other.write_bytes(b"broken")
    shutil.rmtree(tmp_path / "source/kubelet/cases/net")
    shutil.rmtree(tmp_path / "source/status-server")
    pack(tmp_path / "source", tmp_path)
    assert same.read_bytes() == by_another_zlib
    assert not removed.exists()
    assert read(str(other)) == {"wire/http/get-pod.yaml": b"status: 200\n"}
    assert (tmp_path / "status-server/exchanges.yaml.gz").exists(), "areas that the source lacks are kept"


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("wire/http/a b.yaml", b"", "'wire/http/a b.yaml': a path in an archive has no white space"),
        ("wire/http/x\ny.yaml", b"", "'wire/http/x.ny.yaml': a path in an archive has no white space"),
        ("wire/http/a.yaml", b"a\n" + HEADER + b"b\n", "wire/http/a.yaml: a line begins with '--- # file: '"),
        ("wire/http/a.yaml", HEADER, "wire/http/a.yaml: a line begins with '--- # file: '"),
        ("wire/http/a.yaml", b"abc\xff", "wire/http/a.yaml: not UTF-8 text: invalid start byte at byte 3"),
    ],
)
def test_unpackable_files_are_refused_before_anything_is_written(tmp_path: Path, path: str, content: bytes, reason: str) -> None:
    unpack({path: content, "kubelet/cases/end/case.yaml": b""}, tmp_path / "source")
    with pytest.raises(RecordingsError, match=reason):
        pack(tmp_path / "source", tmp_path / "archives")
    assert not (tmp_path / "archives").exists()


def test_committed_archives_are_canonical() -> None:
    archives = {path.relative_to(ARCHIVES).as_posix(): path.read_bytes() for path in ARCHIVES.rglob("*") if path.is_file()}
    assert archive_texts(read(str(ARCHIVES))) == {name: gzip.decompress(data) for name, data in archives.items()}
    # Neither a time nor a file name, compressed at the highest level, by an unknown system.
    assert {data[:10] for data in archives.values()} == {bytes.fromhex("1f8b0800 00000000 02ff")}


@pytest.mark.medium
def test_packing_unpacked_recordings_changes_no_committed_archive(tmp_path: Path) -> None:
    unpack(read(str(ARCHIVES)), tmp_path / "unpacked")
    pack(tmp_path / "unpacked", tmp_path / "archives")
    shutil.copytree(ARCHIVES, tmp_path / "copy")
    pack(tmp_path / "unpacked", tmp_path / "copy")
    for archive in ARCHIVES.rglob("*.gz"):
        committed, name = archive.read_bytes(), archive.relative_to(ARCHIVES)
        assert (tmp_path / "copy" / name).read_bytes() == committed
        if _is_the_zlib_of_the_archives():
            assert (tmp_path / "archives" / name).read_bytes() == committed


def _is_the_zlib_of_the_archives() -> bool:
    """Not zlib-ng nor Apple's, whose output differs."""
    return sys.platform == "linux" and "ng" not in zlib.ZLIB_RUNTIME_VERSION


def test_recordings_are_unpacked_once_and_again_after_a_change(checkout: Path) -> None:
    folder = recordings_of("kubelet")
    assert _files_in(folder) == {path: content for path, content in PLAIN.items() if path.startswith("kubelet/")}
    (folder / "mark").touch()
    assert (recordings_of("kubelet") / "mark").exists()
    changed = {"kubelet/cases/net/case.yaml": b"about: another name\n"}
    packed(changed, checkout / "tests/recordings")
    assert recordings_of("kubelet") != folder
    assert (recordings_of("kubelet") / "cases/net/case.yaml").read_bytes() == b"about: another name\n"


def _files_in(folder: Path) -> dict[str, bytes]:
    return {f"kubelet/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_unpacking_without_archives_fails(checkout: Path) -> None:
    shutil.rmtree(checkout / "tests/recordings/wire")
    with pytest.raises(RecordingsError, match="recordings/wire: no recordings"):
        recordings_of("wire")


def test_failed_unpacking_leaves_no_folder(checkout: Path) -> None:
    (checkout / "tests/recordings/wire/http/get.yaml.gz").write_bytes(compress(b"text"))
    with pytest.raises(RecordingsError, match=r"wire/http/get.yaml.gz: not an archive of recordings"):
        recordings_of("wire")
    assert list((checkout / "build/recordings").iterdir()) == []


def test_recordings_elsewhere_are_preferred(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "goldens/kubelet/cases").mkdir(parents=True)
    (tmp_path / "goldens/materialize").mkdir()
    monkeypatch.setenv("TRAINWRIGHT_SHARED", str(tmp_path))
    assert recordings_of("kubelet") == tmp_path / "goldens/kubelet"
    with pytest.raises(RecordingsError, match="materialize: no recordings; remove the folder"):
        recordings_of("materialize")
    assert recordings_of("wire").parent == checkout / "build/recordings"


@pytest.mark.medium
def test_processes_that_unpack_at_once_share_one_folder(tmp_path: Path) -> None:
    files = {f"kubelet/cases/end-{number}/case.yaml": b"a: 1\n" for number in range(300)}
    packed(files, tmp_path / "tests/recordings")
    shutil.copy(recording_archives.__file__, tmp_path / "tests")
    program = "from recording_archives import recordings_of; print(flush=True); input(); folder = recordings_of('kubelet');"
    program += "print(folder, sum(path.is_file() for path in folder.rglob('*')))"
    options = {"cwd": tmp_path / "tests", "text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", program], **options) for _ in range(4)]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = {process.communicate(timeout=60)[0] for process in processes}
    (folder,) = (tmp_path / "build/recordings").iterdir()
    assert outputs == {f"{folder} 300\n"}


CHANGED = {
    "kubelet/cases/end-clean/case.yaml": b"about: a clean end\n",
    "kubelet/cases/end-clean/observed.yaml": b"phase: Failed\nexit: 0",
    "kubelet/cases/net-host/case.yaml": b"about: a name\n",
    "kubelet/cases/net-host/observed.yaml": b"",
    "wire/http/get-pod.yaml": b"status: 200\n",
    "status-server/exchanges.yaml": b"[]\n",
}
DIFFERENCE = """\
changed kubelet/cases/end-clean (1 file, +2 -2)
--- a/kubelet/cases/end-clean/observed.yaml
+++ b/kubelet/cases/end-clean/observed.yaml
@@ -1,2 +1,2 @@
-phase: Succeeded
-exit: 0
+phase: Failed
+exit: 0
\\ No newline at end of file

removed kubelet/cases/end-error (1 file)

removed kubelet/cases/net (1 file)

added kubelet/cases/net-host (2 files)

"""


@pytest.mark.parametrize("new", ["archives", "folder"])
@pytest.mark.parametrize("old", ["archives", "folder", "revision"])
def test_diff_shows_changed_cases_for_every_kind_of_input(
    old: str, new: str, tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(CHANGED, tmp_path / "changed")
    sides = {"archives": str(checkout / "tests/recordings"), "folder": str(tmp_path / "unpacked"), "revision": "HEAD"}
    changed = {"archives": str(packed(CHANGED, tmp_path / "new")), "folder": str(tmp_path / "changed")}
    assert main(["diff", sides[old], changed[new]]) == 1
    assert capsys.readouterr().out == DIFFERENCE
    assert main(["diff", "--stat", sides[old], changed[new]]) == 1
    assert capsys.readouterr().out == "".join(f"{line}\n" for line in DIFFERENCE.splitlines() if line.endswith(")"))


@pytest.mark.parametrize("other", ["archives", "folder", "revision"])
def test_diff_of_equal_recordings_is_empty(
    other: str, tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {"archives": str(checkout / "tests/recordings"), "folder": str(tmp_path / "unpacked"), "revision": "HEAD"}
    assert main(["diff", "HEAD", sides[other]]) == 0
    assert capsys.readouterr() == ("", "")


def test_diff_compares_two_revisions(tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpack(CHANGED, tmp_path / "changed")
    pack(tmp_path / "changed", checkout / "tests/recordings")
    commit(checkout)
    assert main(["diff", "HEAD~1", "HEAD"]) == 1
    assert capsys.readouterr().out == DIFFERENCE
    assert main(["diff", "HEAD", "HEAD~1", "--stat"]) == 1
    assert "removed kubelet/cases/net-host (2 files)" in capsys.readouterr().out


def test_diff_of_one_archive_is_limited_to_its_group(tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(packed(CHANGED, tmp_path / "new") / "kubelet/cases/end.yaml.gz")
    for old in ("HEAD", str(checkout / "tests/recordings/kubelet/cases/end.yaml.gz")):
        assert main(["diff", "--stat", old, archive]) == 1
        assert capsys.readouterr().out.splitlines() == [
            "changed kubelet/cases/end-clean (1 file, +2 -2)",
            "removed kubelet/cases/end-error (1 file)",
        ]
    assert main(["diff", "--stat", archive, str(tmp_path / "new/kubelet/cases/net.yaml.gz")]) == 1
    assert [line.split(" (")[0] for line in capsys.readouterr().out.splitlines()] == [
        "removed kubelet/cases/end-clean",
        "added kubelet/cases/net-host",
    ]


def test_diff_shows_files_added_to_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = "failures/cases/oom"
    old = {f"{case}/case.yaml": b"a: 1\n", f"{case}/stream.jsonl.gz": b'{"a": 1}\n'}
    new = {f"{case}/case.yaml": b"a: 1\n", f"{case}/stream.jsonl.gz": b'{"a": 2}\n', f"{case}/empty": b""}
    unpack(old, tmp_path / "old")
    assert main(["diff", str(tmp_path / "old"), str(packed(new, tmp_path / "new"))]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"changed {case} (2 files, +1 -1)",
        "--- /dev/null",
        f"+++ b/{case}/empty",
        f"--- a/{case}/stream.jsonl.gz",
        f"+++ b/{case}/stream.jsonl.gz",
        "@@ -1 +1 @@",
        '-{"a": 1}',
        '+{"a": 2}',
        "",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "missing: neither a file, a folder nor a git revision"),
        ("--all", "--all: neither a file, a folder nor a git revision"),
        ("before", "before: no archives of recordings in tests/recordings of this revision"),
        ("{folder}/empty", "{folder}/empty: no recordings; expected folders named behaviour, "),
        ("{folder}/text.gz", "{folder}/text.gz: not gzip: Not a gzipped file"),
        ("{folder}/short.gz", "{folder}/short.gz: not gzip: Compressed file ended"),
        ("{folder}/other.gz", "{folder}/other.gz: not an archive of recordings"),
        ("{folder}/outside.gz", "{folder}/outside.gz: 'wire/../x': a path in an archive has no"),
        ("{folder}/binary.gz", "{folder}/binary.gz: wire/http/a.yaml: not UTF-8 text"),
        ("{folder}/unsorted.gz", "{folder}/unsorted.gz: not an archive of recordings"),
        ("{folder}/broken", "{folder}/broken/wire/http/get.yaml.gz: not gzip"),
        ("{folder}/member", "{folder}/member/failures/cases/oom/stream.jsonl.gz: not gzip"),
    ],
)
def test_bad_input_is_one_line_of_error(
    name: str, reason: str, tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = HEADER + b"wire/http/a.yaml\n", HEADER + b"wire/http/b.yaml\n"
    files = {
        "text.gz": b"text",
        "short.gz": compress(first)[:-9],
        "other.gz": compress(b"text\n" + first),
        "outside.gz": compress(HEADER + b"wire/../x\n"),
        "binary.gz": compress(first + b"\xff\n"),
        "unsorted.gz": compress(second + first),
        "broken/wire/http/get.yaml.gz": b"text",
        "member/failures/cases/oom/stream.jsonl.gz": b"text",
    }
    (tmp_path / "empty").mkdir()
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    bad = name.format(folder=tmp_path)
    assert main(["diff", "--", bad, "HEAD"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: " + reason.format(folder=tmp_path))
    assert shown.err.count("\n") == 1


def test_git_diff_shows_text_once_set_up_as_documented(checkout: Path) -> None:
    root = Path(__file__).parents[1]
    shutil.copy(root / ".gitattributes", checkout)
    fence = (root / "CONTRIBUTING.md").read_text("utf-8").partition("$ git config diff.recording")
    commands = [line[2:] for line in (fence[1] + fence[2]).partition("```")[0].splitlines()]
    assert len(commands) == 2
    for command in commands:
        subprocess.run(command, shell=True, cwd=checkout, check=True)
    packed({**PLAIN, "kubelet/cases/end-clean/observed.yaml": b"phase: Failed\n"}, checkout / "tests/recordings")
    shown = subprocess.run(["git", "diff", "-U0"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert "@@ kubelet/cases/end-clean/observed.yaml\n-phase: Succeeded\n-exit: 0\n+phase: Failed\n" in shown


def test_show_lists_and_prints_cases(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed({"failures/cases/oom/stream.jsonl.gz": b'{"a": 1}\n'}, checkout / "tests/recordings")
    assert main(["show", "kubelet"]) == 0
    assert capsys.readouterr().out == "end-clean\nend-error\nnet\n"
    assert main(["show", "kubelet", "end-clean"]) == 0
    shown = "--- # cases/end-clean/case.yaml\nabout: a clean end\n\n--- # cases/end-clean/observed.yaml\nphase: Succeeded\nexit: 0\n\n"
    assert capsys.readouterr().out == shown
    assert main(["show", "failures", "oom"]) == 0
    assert capsys.readouterr().out == '--- # cases/oom/stream.jsonl.gz\n{"a": 1}\n\n'
    assert main(["show", "wire", "nothing"]) == 1


def test_pack_replaces_the_archives(tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpack(CHANGED, tmp_path / "changed")
    assert main(["pack", str(tmp_path / "changed")]) == 0
    assert read(str(checkout / "tests/recordings")) == CHANGED
    assert main(["pack", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/missing: no recordings; expected folders named ")


def test_a_reader_that_stops_early_sees_no_traceback() -> None:
    program = [sys.executable, recording_archives.__file__, "show", "--help"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
