"""What the real systems did, as recorded: one compressed archive for each area, unpacked once into `build/recordings`.

As a program: `show AREA` lists the cases, `show AREA CASE` prints one as YAML, `pack FOLDER` makes the archives from unpacked
recordings. A folder of other recordings in the same layout is used instead where TRAINWRIGHT_SHARED names one.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

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
"""The areas, and what of each is recorded facts."""


def recordings_of(area: str) -> Path:
    """The folder with the recordings of an area."""
    if (elsewhere := os.environ.get("TRAINWRIGHT_SHARED")) and (Path(elsewhere) / "goldens" / area).is_dir():
        return Path(elsewhere) / "goldens" / area
    archive = ARCHIVES / f"{area}.tar.xz"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    folder = ROOT / "build" / "recordings" / f"{area}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        try:
            scratch.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(scratch)
    return folder


def pack(source: Path, area: str) -> None:
    """Write an area's archive; equal recordings give equal bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for content in CONTENTS[area]:
            whole = source / area / content
            for path in sorted([whole, *whole.rglob("*")] if whole.is_dir() else [whole]):
                entry = archive.gettarinfo(path, str(path.relative_to(source / area)))
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
                entry.mode = 0o755 if path.is_dir() else 0o644
                with path.open("rb") if path.is_file() else io.BytesIO() as content_of:
                    archive.addfile(entry, content_of if path.is_file() else None)
    (ARCHIVES / f"{area}.tar.xz").write_bytes(packed.getvalue())


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
        print(path.read_text("utf-8") if path.suffix != ".gz" else "# binary; unpack it from build/recordings")
    return 0 if found else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    shown = commands.add_parser("show", help="list the cases of an area, or print one")
    shown.add_argument("area", choices=sorted(CONTENTS))
    shown.add_argument("case", nargs="?", default="")
    packed = commands.add_parser("pack", help="make the archives")
    packed.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "show":
        return show(arguments.area, arguments.case)
    for area in CONTENTS:
        pack(arguments.folder, area)
    return 0


if __name__ == "__main__":
    sys.exit(main())
