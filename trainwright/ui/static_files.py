"""The files of the page, read once at the start: what is served is a fixed list, so no path of a request reaches the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
MISSING = (
    "the page cannot be shown: uPlot, Preact and htm could not be fetched when Trainwright was installed; "
    "install it again where npm's registry can be reached"
)
_LOADING = b"Loading \xe2\x80\xa6"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def has_vendored_files(folder: Path = FOLDER) -> bool:
    """Return whether the code of others is there, which the build puts in place whole or not at all."""
    return (folder / "vendor").is_dir()


def read_static_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Return the files by their path below `folder`, with slashes; without the code of others, index.html says what is missing.

    Raises OSError, KeyError for a type without a media type.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "index.html" and not has_vendored_files(folder):
                content = content.replace(_LOADING, MISSING.encode())
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.relative_to(folder).as_posix()] = StaticFile(content, _TYPES[path.suffix], etag)
    return files
