"""What the real systems did, as recorded: `tests/recordings/`, unpacked once into `build/recordings`.

An archive is the gzipped text of one group: the cases of an area whose names begin with the same word. Its files follow one another,
each after a line with its path, so that `zcat` and `git diff` show it (CONTRIBUTING.md says how to set up git).

As a program, `recording_archives.py FOLDER` makes the archives from unpacked recordings. A folder of other recordings in the same
layout is used instead where TRAINWRIGHT_SHARED names one.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Sequence
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
    """A file or folder without readable recordings; the message names it."""


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
    groups: dict[str, Files] = {}
    for path, content in files.items():
        groups.setdefault(archive_of(path), {})[path] = content
    return {name: _text(members) for name, members in groups.items()}


def archive_of(path: str) -> str:
    """The archive that a recorded file, AREA/CONTENT/..., belongs to. Those of a case share one."""
    area, content, *below = path.split("/")
    if not below:
        return f"{area}/{PurePosixPath(content).stem}{SUFFIX}"
    case = below[0] if len(below) > 1 else PurePosixPath(below[0]).stem
    return f"{area}/{content}/{case.split('-')[0]}{SUFFIX}"


def compress(content: bytes, level: int = 9) -> bytes:
    """Gzip without time and file name."""
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", level, packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


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


def _archives_in(folder: Path, area: str) -> list[Path]:
    return sorted([*(folder / area).glob(f"*{SUFFIX}"), *(folder / area).glob(f"*/*{SUFFIX}")])


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archives of the areas that a folder has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    try:
        pack(parser.parse_args(arguments).folder, ARCHIVES)
    except (RecordingsError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
