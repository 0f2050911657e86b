"""Supports `kubectl cp` from a volume. It runs tar in the container and expects the container's paths in the archive.

On the host the files have another path, so tar reads them through a link with the container's path.
"""

from __future__ import annotations

from pathlib import Path

_ARCHIVE = ["tar", "cf", "-"]


def tar_command(command: list[str], mounts: tuple[tuple[str, Path], ...], links: Path) -> list[str] | None:
    """Return a tar command that archives a path of a volume under the container's path; None for any other command.

    `links` is a folder for the links. Raises OSError.
    """
    if command[:3] != _ARCHIVE or len(command) != 4:
        return None
    path = command[3].rstrip("/")
    for number, (mount, host) in sorted(enumerate(mounts), key=lambda entry: len(entry[1][0]), reverse=True):
        mount = mount.rstrip("/")
        if mount and (path == mount or path.startswith(mount + "/")):
            root = links / str(number)
            link = root / mount.lstrip("/")
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(host)
            inside = path.lstrip("/") + ("/." if path == mount else "")
            return [*_ARCHIVE, "-C", str(root), inside]
    return None
