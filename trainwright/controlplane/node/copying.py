"""`kubectl cp` out of a volume: it runs tar in the container, and relies on the names of the container's paths in the archive.

A process on the host finds the files under the host's path; tar is led to them through a link that has the right name.
"""

from __future__ import annotations

from pathlib import Path

_ARCHIVE = ["tar", "cf", "-"]


def archive_of(command: list[str], mounts: tuple[tuple[str, Path], ...], links: Path) -> list[str] | None:
    """The command that archives a path of a volume under its own name; None for every other command.

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
