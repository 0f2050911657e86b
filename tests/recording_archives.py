"""What the real systems did, as recorded: `tests/recordings/`, unpacked once into `build/recordings`.

An archive is the gzipped text of one group: the cases of an area whose names begin with the same word. Its files follow one another,
each after a line with its path, so that `zcat` and `git diff` show it (CONTRIBUTING.md says how to set up git).

As a program: `show AREA` lists the cases, `show AREA CASE` prints one as YAML, `pack FOLDER` makes the archives from unpacked
recordings, `diff OLD NEW` compares recordings. A folder of other recordings in the same layout is used instead where
TRAINWRIGHT_SHARED names one.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import gzip
import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "tests" / "recordings"
CONTENTS = {
    "behaviour": ("cases",),
    "failures": ("cases",),
    "kubelet": ("cases",),
    "materialize": ("cases", "cases-status", "updates", "index.tsv"),
    "status-server": ("exchanges.yaml",),
    "wire": ("http", "kubectl"),
}
"""The areas, and what of each is recorded facts: folders of cases, or files."""
SUFFIX = ".yaml.gz"
HEADER = b"--- # file: "
"""What precedes a path in an archive. YAML reads the line as the start of a document; no recorded line may begin with it."""
NO_NEWLINE = " (no newline at its end)"
MEMBER_LEVEL = 1
"""Compressed files inside recordings are compressed again each time they are unpacked: fast matters, size does not."""

Files = dict[str, bytes]
"""Recorded files by path, AREA/CONTENT/...; the content of a .gz file is uncompressed."""


class RecordingsError(ValueError):
    """A file, folder or revision without readable recordings; the message names it."""


def recordings_of(area: str) -> Path:
    """The folder with the recordings of an area. Raises RecordingsError if it is empty."""
    if (elsewhere := os.environ.get("TRAINWRIGHT_SHARED")) and (folder := Path(elsewhere) / "goldens" / area).is_dir():
        if not any(folder.iterdir()):
            raise RecordingsError(f"{folder}: no recordings; remove the folder to compare with those of the project")
        return folder
    packed = {path.relative_to(ARCHIVES).as_posix(): path.read_bytes() for path in _archives_in(ARCHIVES, area)}
    if not packed:
        raise RecordingsError(f"{ARCHIVES / area}: no recordings")
    digest = hashlib.sha256(b"".join(f"{name} {len(data)}\n".encode() + data for name, data in packed.items())).hexdigest()[:12]
    folder = ROOT / "build" / "recordings" / f"{area}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            for name, data in packed.items():
                unpack(read_archive(data, name), scratch)
            (scratch / area).rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise
        finally:
            shutil.rmtree(scratch)
    return folder


def unpack(files: Files, folder: Path) -> None:
    """Write the files below a folder."""
    for parent in {os.path.dirname(path) for path in files}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (folder / path).write_bytes(compress(content, MEMBER_LEVEL) if path.endswith(".gz") else content)


def pack(source: Path, archives: Path) -> None:
    """Make the archives of those areas that a folder of unpacked recordings has.

    An archive whose text would not change is left alone, because another zlib may compress the same text to other bytes.
    """
    files = read_unpacked(source)
    if not files:
        raise RecordingsError(f"{source}: no recordings; expected folders named {', '.join(CONTENTS)}")
    texts = archive_texts(files)
    for area in {path.split("/")[0] for path in files}:
        for archive in _archives_in(archives, area):
            if archive.relative_to(archives).as_posix() not in texts:
                archive.unlink()
    for name, text in texts.items():
        if not _has_text(archives / name, text):
            (archives / name).parent.mkdir(parents=True, exist_ok=True)
            (archives / name).write_bytes(compress(text))


def archive_texts(files: Files) -> dict[str, bytes]:
    """The text of each archive, by its path below `tests/recordings`. Raises RecordingsError for a file that cannot be packed."""
    return {name: _text(members) for name, members in _grouped(files, archive_of).items()}


def case_of(path: str) -> str:
    """AREA/CONTENT/CASE of a recorded file; its own path where a content is one file."""
    area, content, *below = path.split("/")
    if not below:
        return path
    return f"{area}/{content}/{below[0] if len(below) > 1 else PurePosixPath(below[0]).stem}"


def archive_of(path: str) -> str:
    """The archive that a recorded file belongs to. Those of a case share one."""
    area, content, *case = case_of(path).split("/")
    return f"{area}/{content}/{case[0].split('-')[0]}{SUFFIX}" if case else f"{area}/{PurePosixPath(content).stem}{SUFFIX}"


def compress(content: bytes, level: int = 9) -> bytes:
    """Gzip without time and file name."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", level, packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


def read(name: str) -> Files:
    """Recordings from an archive, a folder of archives, a folder of unpacked recordings or a git revision. Raises RecordingsError."""
    path = Path(name)
    if path.is_file():
        return read_archive(path.read_bytes(), name)
    if not path.is_dir():
        return read_revision(name)
    archives = [archive for area in CONTENTS for archive in _archives_in(path, area)]
    files = {k: v for archive in archives for k, v in read_archive(archive.read_bytes(), str(archive)).items()}
    if not (files := files or read_unpacked(path)):
        raise RecordingsError(f"{name}: no recordings; expected folders named {', '.join(CONTENTS)}")
    return files


def read_archive(packed: bytes, name: str) -> Files:
    """The files in an archive. Raises RecordingsError, with this name, for anything that `pack` would not write."""
    text = _decompress(packed, name)
    # The newline before a header belongs to it, and is added to the file before it again.
    nothing, *pieces = (b"\n" + text.removesuffix(b"\n")).split(b"\n" + HEADER)
    files: Files = {}
    for piece in pieces:
        header, newline, content = piece.partition(b"\n")
        path = header.decode("utf-8", "replace")
        files[path.removesuffix(NO_NEWLINE)] = content if path.endswith(NO_NEWLINE) else content + newline
    try:
        canonical = _text(files)
    except RecordingsError as error:
        raise RecordingsError(f"{name}: {error}") from error
    if nothing or not files or canonical != text:
        raise RecordingsError(f"{name}: not an archive of recordings")
    return files


def read_unpacked(folder: Path) -> Files:
    """The recorded files in a folder with unpacked recordings; none if it has none."""
    places = [folder / area / content for area, contents in CONTENTS.items() for content in contents]
    paths = (path for place in places for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _content(path) for path in paths}


def read_revision(revision: str) -> Files:
    """The recordings in a commit of this repository."""
    git, archives = ("git", "-C", str(ROOT)), ARCHIVES.relative_to(ROOT).as_posix()
    named = [*git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    commit = subprocess.run(named, capture_output=True, text=True, check=False)
    if commit.returncode:
        raise RecordingsError(f"{revision}: neither a file, a folder nor a git revision")
    exported = subprocess.run(
        [*git, "archive", "--format=tar", commit.stdout.strip(), "--", archives], capture_output=True, check=False
    )
    files: Files = {}
    if not exported.returncode:
        with tarfile.open(fileobj=io.BytesIO(exported.stdout)) as tree:
            for member in tree:
                if member.name.endswith(SUFFIX) and (data := tree.extractfile(member)):
                    files |= read_archive(data.read(), f"{revision}:{member.name}")
    if not files:
        raise RecordingsError(f"{revision}: no archives of recordings in {archives} of this revision")
    return files


@dataclass(frozen=True)
class CaseChange:
    """A case that differs: its files before and after, none where it did not exist."""

    case: str
    before: Files
    after: Files

    @functools.cached_property
    def patches(self) -> list[list[str]]:
        """A unified diff for each changed file; none for a case that was added or removed as a whole."""
        if not self.before or not self.after:
            return []
        changed = (path for path in sorted(self.before | self.after) if self.before.get(path) != self.after.get(path))
        return [_unified_diff(path, self.before.get(path), self.after.get(path)) for path in changed]

    def summary(self) -> str:
        if not self.before or not self.after:
            return f"{'removed' if self.before else 'added'} {self.case} ({_count(len(self.before or self.after))})"
        lines = [line for patch in self.patches for line in patch[2:]]
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        return f"changed {self.case} ({_count(len(self.patches))}, +{added} -{removed})"


def changed_cases(old: Files, new: Files) -> Iterator[CaseChange]:
    """The cases that differ, by area and name."""
    before, after = _grouped(old, case_of), _grouped(new, case_of)
    for case in sorted(before | after, key=lambda case: case.split("/")):
        if before.get(case) != after.get(case):
            yield CaseChange(case, before.get(case, {}), after.get(case, {}))


def diff(old: str, new: str, stat: bool) -> int:
    """Print the cases that differ, and what changed in each unless `stat`. 1 where any does."""
    files = [read(old), read(new)]
    if Path(old).is_file() != Path(new).is_file():  # a single archive is compared with the same group of the other side
        groups = {archive_of(path) for path in (files[0] if Path(old).is_file() else files[1])}
        files = [{path: content for path, content in side.items() if archive_of(path) in groups} for side in files]
    found = 0
    for change in changed_cases(*files):
        found = 1
        print(change.summary())
        if not stat:
            print("".join(f"{line}\n" for patch in change.patches for line in patch))
    return found


def show(area: str, case: str) -> int:
    """Print the names of the cases, or the files of one case as YAML documents. 1 where there is no such case."""
    folder = recordings_of(area)
    if not case:
        names = {
            path.stem if path.is_file() else path.name for content in CONTENTS[area] for path in (folder / content).glob("*")
        }
        print("\n".join(sorted(names)))
        return 0
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and case in (path.stem, path.parent.name)]
    for path in found:
        print(f"--- # {path.relative_to(folder)}")
        print(_content(path).decode("utf-8", "backslashreplace"))
    return 0 if found else 1


def _archives_in(folder: Path, area: str) -> list[Path]:
    return sorted([*(folder / area).glob(f"*{SUFFIX}"), *(folder / area).glob(f"*/*{SUFFIX}")])


def _grouped(files: Files, group_of: Callable[[str], str]) -> dict[str, Files]:
    groups: dict[str, Files] = {}
    for path, content in files.items():
        groups.setdefault(group_of(path), {})[path] = content
    return groups


def _text(files: Files) -> bytes:
    parts = []
    for path, content in sorted(files.items()):
        if re.search(r"\s", path) or {"", ".", ".."} & set(path.split("/")):
            raise RecordingsError(f"{path!r}: a path in an archive has no white space and no empty or relative parts")
        if HEADER in content and b"\n" + HEADER in b"\n" + content:
            raise RecordingsError(f"{path}: a line begins with {HEADER.decode()!r}, which separates files in an archive")
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RecordingsError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
        whole = content.endswith(b"\n") or not content
        parts += [HEADER, path.encode(), b"" if whole else NO_NEWLINE.encode(), b"\n", content, b"" if whole else b"\n"]
    return b"".join(parts)


def _has_text(archive: Path, text: bytes) -> bool:
    try:
        return _decompress(archive.read_bytes(), str(archive)) == text
    except (FileNotFoundError, RecordingsError):
        return False


def _decompress(packed: bytes, name: str) -> bytes:
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingsError(f"{name}: not gzip: {error}") from error


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return _decompress(content, str(path)) if path.suffix == ".gz" else content


def _unified_diff(path: str, before: bytes | None, after: bytes | None) -> list[str]:
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    lines = list(difflib.unified_diff(_lines(before), _lines(after), *names, lineterm=""))
    return lines or [f"--- {names[0]}", f"+++ {names[1]}"]


def _lines(content: bytes | None) -> list[str]:
    lines = (content or b"").decode("utf-8", "backslashreplace").split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _count(files: int) -> str:
    return f"{files} file{'s' if files != 1 else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    shown = commands.add_parser("show", help="list the cases of an area, or print one")
    shown.add_argument("area", choices=sorted(CONTENTS))
    shown.add_argument("case", nargs="?", default="")
    packed = commands.add_parser("pack", help="make the archives of the areas that a folder has")
    packed.add_argument("folder", type=Path)
    compared = commands.add_parser(
        "diff",
        help="print what differs; the exit code is 1 if anything does",
        description="OLD and NEW: an archive, a folder of archives, a folder of unpacked recordings, or a git revision.",
    )
    compared.add_argument("old", metavar="OLD")
    compared.add_argument("new", metavar="NEW")
    compared.add_argument("--stat", action="store_true", help="one line for each case")
    given = parser.parse_args(arguments)
    try:
        if given.command == "show":
            return show(given.area, given.case)
        if given.command == "diff":
            return diff(given.old, given.new, given.stat)
        pack(given.folder, ARCHIVES)
    except (RecordingsError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `diff OLD NEW | head` ends without a traceback
    sys.exit(main())
