"""A folder of code as an archive: the same for the same files, and only what will be there where it is unpacked."""

from __future__ import annotations

import io
import lzma
import os
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.code import code_package
from trainwright.jobs.code.code_package import BadCode, PackedCode, pack_code


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def entries(code: PackedCode) -> dict[str, tuple[int, str]]:
    """Name to mode and content."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(b"".join(code.parts)))) as archive:
        members = archive.getmembers()
        assert all((one.mtime, one.uid, one.gid, one.uname, one.gname) == (0, 0, 0, "", "") for one in members)
        assert all(one.isreg() for one in members)
        return {one.name: (one.mode, (archive.extractfile(one) or io.BytesIO()).read().decode()) for one in members}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "code", {"train.py": "print(1)", "a/b.py": "", "a/ü.txt": "ü", "B.py": "x"})


def test_a_folder_is_its_files(folder: Path) -> None:
    (folder / "run.sh").write_text("x")
    (folder / "run.sh").chmod(0o700)
    code = pack_code(str(folder))
    assert entries(code) == {
        "B.py": (0o644, "x"),
        "a/b.py": (0o644, ""),
        "a/ü.txt": (0o644, "ü"),
        "run.sh": (0o755, "x"),
        "train.py": (0o644, "print(1)"),
    }
    assert list(entries(code)) == sorted(entries(code), key=Path)
    assert code.source == str(folder)
    assert pack_code(f"file://{folder}") == code


@pytest.mark.medium
@given(
    order=st.permutations(["train.py", "a/b.py", "a/c/d", "B.py", "a.py", "a/ü"]), umask=st.sampled_from([0o022, 0o077, 0o002])
)
def test_the_same_files_are_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, order: list[str], umask: int) -> None:
    first = make(tmp_path_factory.mktemp("one"), {name: name for name in sorted(order)})
    before = os.umask(umask)
    try:
        second = make(tmp_path_factory.mktemp("two"), {name: name for name in order})
    finally:
        os.umask(before)
    for number, name in enumerate(order):
        os.utime(second / name, (number, number * 1000))
    one, two = pack_code(str(first)), pack_code(str(second))
    assert (one.digest, one.parts) == (two.digest, two.parts)


def test_a_changed_byte_mode_or_name_is_another_digest(folder: Path) -> None:
    digests = [pack_code(str(folder)).digest]
    (folder / "train.py").write_text("print(2)")
    digests.append(pack_code(str(folder)).digest)
    (folder / "train.py").chmod(0o755)
    digests.append(pack_code(str(folder)).digest)
    (folder / "train.py").rename(folder / "train2.py")
    digests.append(pack_code(str(folder)).digest)
    assert len(set(digests)) == 4
    (folder / "empty").mkdir()
    assert pack_code(str(folder)).digest == digests[-1]


def test_caches_and_environments_stay(folder: Path) -> None:
    before = pack_code(str(folder)).digest
    left = [".git/config", ".venv/x", "a/__pycache__/b.pyc", "a/x.pyc", ".env", "node_modules/x", ".DS_Store", ".ruff_cache/x"]
    make(folder, dict.fromkeys(left, "secret"))
    (folder / "venv").symlink_to("/usr")
    assert pack_code(str(folder)).digest == before
    (folder / "a" / ".git").write_text("gitdir: elsewhere")
    assert pack_code(str(folder)).digest == before


def test_links_inside_are_followed(folder: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    (folder / "absolute.py").symlink_to(folder / "B.py")
    (folder / "sub").symlink_to("a")
    found = entries(pack_code(str(folder)))
    assert found["link.py"] == (0o644, "print(1)")
    assert found["absolute.py"] == (0o644, "x")
    assert found["sub/ü.txt"] == (0o644, "ü")


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside.py", "/etc", "..", "missing-outside/../../x", "a/../../outside.py"]
)
def test_a_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    make(folder.parent, {"outside.py": "secret"})
    (folder / "a" / "link").symlink_to(target if target.startswith("/") else Path("..") / target)
    with pytest.raises(BadCode, match="link is a link to a target outside the folder"):
        pack_code(str(folder))


def test_a_link_that_leads_nowhere_or_back_is_refused(folder: Path) -> None:
    (folder / "a" / "up").symlink_to("..")
    with pytest.raises(BadCode, match="up is a link to one of its parent folders"):
        pack_code(str(folder))
    (folder / "a" / "up").unlink()
    make(folder, {"b/x": ""})
    (folder / "a" / "over").symlink_to("../b")
    (folder / "b" / "over").symlink_to("../a")
    with pytest.raises(BadCode, match="over is a link to one of its parent folders"):
        pack_code(str(folder))
    (folder / "a" / "over").unlink()
    (folder / "self").symlink_to("self")
    with pytest.raises(BadCode, match="self is not a regular file"):
        pack_code(str(folder))
    (folder / "self").unlink()
    (folder / "broken").symlink_to("nothing")
    with pytest.raises(BadCode, match="broken is not a regular file"):
        pack_code(str(folder))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    with pytest.raises(BadCode, match="empty contains no files"):
        pack_code(str(tmp_path / "empty"))


def test_too_much_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "data.bin").open("wb") as file:
        file.truncate(2**40)  # a hole: reading it would need a tebibyte
    with pytest.raises(BadCode, match=r"code has more than 64 MiB; data belongs on the workspace"):
        pack_code(str(folder))


@pytest.mark.medium
def test_packed_code_is_limited_in_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_package, "PART_BYTES", 2**17)
    (folder / "data.bin").write_bytes(random.Random(1).randbytes(3 * 2**17))
    assert [len(part) for part in pack_code(str(folder)).parts][:3] == [2**17] * 3
    monkeypatch.setattr(code_package, "MAX_PARTS", 3)
    with pytest.raises(BadCode, match="code is 0 MiB when packed, and the limit is 0 MiB; build an image, or use the workspace"):
        pack_code(str(folder))


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BadCode, match=r"code: .*B.py cannot be read: Permission denied"):
        pack_code(str(folder))


@pytest.mark.parametrize("command", [["trane.py"], ["python", "-u", "trane.py", "--steps", "3"], ["torchrun", "sub/train.py"]])
def test_a_program_that_is_not_in_the_folder_is_refused_with_what_there_is(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(BadCode, match=r"command: '\S+' is not in \S+; Python files there: train\.py"):
        pack_code(str(tmp_path), command)
