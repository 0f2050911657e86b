"""Archives of recordings: what is packed is unpacked again, equal recordings give equal bytes, and git shows what has changed."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import recording_archives
from hypothesis import given
from hypothesis import strategies as st
from recording_archives import (
    ARCHIVES,
    HEADER,
    RecordingsError,
    archive_texts,
    compress,
    main,
    pack,
    read_archive,
    recordings_of,
    unpack,
)

PLAIN = {
    "kubelet/cases/end-clean/case.yaml": b"about: a clean end\n",
    "kubelet/cases/end-error/case.yaml": b"about: an error",
    "kubelet/cases/net/deeper/x": b"\n\n\r\n",
    "failures/cases/oom/stream.jsonl.gz": b'{"a": 1}\n',
    "wire/http/get-pod.yaml": "ä: 漢字 \u2028 \ufeff\n".encode(),
    "status-server/exchanges.yaml": b"",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with the archives of these files, which takes the place of this one; the plain files lie beside it, unpacked."""
    root = tmp_path / "checkout"
    monkeypatch.delenv("TRAINWRIGHT_SHARED", raising=False)
    monkeypatch.setattr(recording_archives, "ROOT", root)
    monkeypatch.setattr(recording_archives, "ARCHIVES", root / "tests/recordings")
    unpack(PLAIN, tmp_path / "unpacked")
    pack(tmp_path / "unpacked", root / "tests/recordings")
    return root


def test_packed_recordings_come_back_with_the_files_of_a_case_in_one_archive(checkout: Path) -> None:
    assert read(checkout / "tests/recordings") == PLAIN
    archives = [path.relative_to(checkout / "tests/recordings").as_posix() for path in checkout.rglob("*.gz")]
    assert sorted(archives) == [
        "failures/cases/oom.yaml.gz",
        "kubelet/cases/end.yaml.gz",
        "kubelet/cases/net.yaml.gz",
        "status-server/exchanges.yaml.gz",
        "wire/http/get.yaml.gz",
    ]


def read(folder: Path) -> dict[str, bytes]:
    """The recordings in a folder of archives."""
    files: dict[str, bytes] = {}
    for archive in folder.rglob("*.gz"):
        files |= read_archive(archive.read_bytes(), archive.name)
    return files


_PARTS = st.text("ab-.é", min_size=1, max_size=4).filter(lambda part: part not in (".", ".."))
_LINES = st.sampled_from([b"", b"\n", b"\r\n", b"a", b"--- ", HEADER[:-2], " ü".encode(), b" (no newline at its end)", b"---\n"])


@pytest.mark.medium
@given(st.dictionaries(_PARTS.map(lambda part: f"wire/http/a-{part}/x"), st.lists(_LINES, max_size=6).map(b"".join), min_size=1))
def test_property_archives_are_read_as_written(files: dict[str, bytes]) -> None:
    texts = archive_texts(files)
    assert {path: content for text in texts.values() for path, content in read_archive(compress(text), "").items()} == files


@given(st.binary(max_size=60) | st.lists(_LINES | st.just(HEADER + b"wire/http/a.yaml\n"), max_size=6).map(b"".join))
def test_property_a_text_is_refused_or_canonical(text: bytes) -> None:
    with contextlib.suppress(RecordingsError):
        assert recording_archives._text(read_archive(compress(text), "an archive")) == text


@pytest.mark.medium
def test_committed_archives_are_canonical() -> None:
    archives = {path.relative_to(ARCHIVES).as_posix(): path.read_bytes() for path in ARCHIVES.rglob("*") if path.is_file()}
    assert archive_texts(read(ARCHIVES)) == {name: gzip.decompress(data) for name, data in archives.items()}
    # Neither a time nor a file name, compressed at the highest level, by an unknown system.
    assert {data[:10] for data in archives.values()} == {bytes.fromhex("1f8b0800 00000000 02ff")}


def test_packing_writes_changed_archives_only(tmp_path: Path, checkout: Path) -> None:
    archives = checkout / "tests/recordings"
    same, removed, other = (
        archives / name for name in ("kubelet/cases/end.yaml.gz", "kubelet/cases/net.yaml.gz", "wire/http/get.yaml.gz")
    )
    by_another_zlib = compress(gzip.decompress(same.read_bytes()), level=1)
    same.write_bytes(by_another_zlib)
    other.write_bytes(b"broken")
    shutil.rmtree(tmp_path / "unpacked/kubelet/cases/net")
    shutil.rmtree(tmp_path / "unpacked/status-server")
    assert main([str(tmp_path / "unpacked")]) == 0
    assert same.read_bytes() == by_another_zlib
    assert not removed.exists()
    assert read_archive(other.read_bytes(), "") == {"wire/http/get-pod.yaml": PLAIN["wire/http/get-pod.yaml"]}
    assert (archives / "status-server/exchanges.yaml.gz").exists(), "areas that the source lacks are kept"


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("wire/http/a b.yaml", b"", "'wire/http/a b.yaml': a path in an archive has no white space"),
        ("wire/http/a.yaml", b"a\n" + HEADER + b"b\n", "wire/http/a.yaml: a line begins with '--- # file: '"),
        ("wire/http/a.yaml", b"abc\xff", "wire/http/a.yaml: not UTF-8 text: invalid start byte at byte 3"),
    ],
)
def test_files_that_cannot_be_packed_are_refused_before_anything_is_written(
    tmp_path: Path, path: str, content: bytes, reason: str
) -> None:
    unpack({path: content, "kubelet/cases/end/case.yaml": b""}, tmp_path / "source")
    with pytest.raises(RecordingsError, match=reason):
        pack(tmp_path / "source", tmp_path / "archives")
    assert not (tmp_path / "archives").exists()


def test_recordings_are_unpacked_once_and_again_after_a_change(checkout: Path) -> None:
    folder = recordings_of("kubelet")
    assert (folder / "cases/net/deeper/x").read_bytes() == PLAIN["kubelet/cases/net/deeper/x"]
    (folder / "mark").touch()
    assert (recordings_of("kubelet") / "mark").exists()
    (checkout / "tests/recordings/kubelet/cases/net.yaml.gz").unlink()
    assert not (recordings_of("kubelet") / "cases/net").exists()


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


def test_git_diff_shows_text_once_set_up_as_documented(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")]:
        monkeypatch.delenv(name)  # a hook sets them: commits would go to the repository of the hook
    root = Path(recording_archives.__file__).parents[1]
    shutil.copy(root / ".gitattributes", checkout)
    fence = (root / "CONTRIBUTING.md").read_text("utf-8").partition("$ git config diff.recording")
    documented = [line[2:] for line in (fence[1] + fence[2]).partition("```")[0].splitlines()]
    assert len(documented) == 2
    commit = "git -c user.name=a -c user.email=a@example.com commit -q -m state"
    for command in ["git init -q --template=", "git add --all", commit, *documented]:
        subprocess.run(command, shell=True, cwd=checkout, check=True)
    for name, text in archive_texts({**PLAIN, "kubelet/cases/end-clean/case.yaml": b"about: an error\n"}).items():
        (checkout / "tests/recordings" / name).write_bytes(compress(text))
    shown = subprocess.run(["git", "diff", "-U0"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert "@@ kubelet/cases/end-clean/case.yaml\n-about: a clean end\n+about: an error\n" in shown
