"""The files of the page, read once at the start: what is served is a fixed list, so no path of a request reaches the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read_static_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Return the files by their path below `folder`, with slashes. Raises OSError, KeyError for a type without a media type."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.relative_to(folder).as_posix()] = StaticFile(content, _TYPES[path.suffix], etag)
    return files
