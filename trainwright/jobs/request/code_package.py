"""A folder of code, or a revision of a git repository, as one packed archive whose digest says what it is.

The archive is the same for the same files, whenever and wherever it is packed: names in order, no times, no owners.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PART_BYTES = 900 * 1024
"""A ConfigMap takes a mebibyte."""
MOST_PARTS = 8
MOST_UNPACKED = 64 * 1024 * 1024
_GIT = re.compile(
    r"git\+(?P<url>(?:https|ssh|file)://(?:[^@#\s/]+@)?[^@#\s/]*/[^@#\s]+)@(?P<revision>[^@#\s]+)(?:#subdirectory=(?P<folder>[^#]+))?"
)
_GIT_SECONDS = 300
_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
"""Variables that git sets for its hooks: with them it would write to the repository of whoever calls."""
_LEFT_OUT = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        "__pycache__",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "node_modules",
        ".env",
        ".DS_Store",
    ]
)
"""Caches, environments, histories, and the file that credentials are kept in."""


class BadCode(ValueError):
    """The code cannot be packed; the message names what is wrong with it and what to do."""


@dataclass(frozen=True)
class PackedCode:
    """`digest` is that of the archive before compression (SHA-256, hexadecimal); `parts` are its compressed bytes."""

    digest: str
    parts: tuple[bytes, ...]
    source: str
    """Where it came from: the folder, or the repository with its commit."""


def pack_code(code: str) -> PackedCode:
    """From a folder, or `git+https://HOST/PATH@REVISION[#subdirectory=FOLDER]`. Raises BadCode."""
    if not code.startswith("git+"):
        folder = Path(code.removeprefix("file://")).expanduser()
        if not folder.is_dir():
            raise BadCode(f"code: {code!r} is not a folder here; give one, or git+https://HOST/PATH@REVISION")
        return _packed(folder, str(folder))
    match = _GIT.fullmatch(code)
    if match is None or match["revision"].startswith("-"):
        raise BadCode(f"code: {code!r} is not of the form git+https://HOST/PATH@REVISION[#subdirectory=FOLDER]")
    with tempfile.TemporaryDirectory(prefix="trainwright-code-") as clone:
        commit = _fetched(match["url"], match["revision"], Path(clone))
        folder = (Path(clone) / (match["folder"] or ".")).resolve()
        if not folder.is_relative_to(Path(clone).resolve()) or not folder.is_dir():
            raise BadCode(f"code: {match['url']} has no folder {match['folder']!r} at {match['revision']}")
        return _packed(folder, f"{match['url']}@{commit}")


def _fetched(url: str, revision: str, clone: Path) -> str:
    """The commit that was checked out. Only that revision is fetched where the server allows it."""
    _git(clone, "init", "--quiet")
    _git(clone, "remote", "add", "origin", url)
    try:
        _git(clone, "fetch", "--quiet", "--depth", "1", "origin", "--", revision)
        wanted = "FETCH_HEAD"
    except BadCode:  # a short commit, or a server that gives out no single ones
        _git(clone, "fetch", "--quiet", "--tags", "origin")
        wanted = revision
    _git(clone, "checkout", "--quiet", wanted, "--")
    return _git(clone, "rev-parse", "HEAD").strip()


def _git(clone: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    env = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **env, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    command = ["git", "-C", str(clone), *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False, env=env
        )
    except FileNotFoundError:
        raise BadCode("code: git is not installed here; install it, or give a folder") from None
    except subprocess.TimeoutExpired:
        raise BadCode(f"code: git {words[0]} took more than {_GIT_SECONDS} s") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadCode(f"code: git {words[0]} failed: {said}")
    return done.stdout


def _packed(folder: Path, source: str) -> PackedCode:
    try:
        content = _archive_of(folder, source)
    except OSError as error:
        raise BadCode(f"code: {error.filename} cannot be read: {error.strerror}") from None
    packed = lzma.compress(content)
    if len(packed) > PART_BYTES * MOST_PARTS:
        most = PART_BYTES * MOST_PARTS // 2**20
        raise BadCode(
            f"code: {source} packs to {len(packed) // 2**20} MiB, and {most} MiB travel; build an image, or use the workspace"
        )
    parts = tuple(packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES))
    return PackedCode(hashlib.sha256(content).hexdigest(), parts, source)


def _archive_of(folder: Path, source: str) -> bytes:
    """Raises OSError."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(_files_of(folder)):
            about = (folder / path).stat()
            if archive.tell() + about.st_size > MOST_UNPACKED:
                raise BadCode(f"code: {source} has more than {MOST_UNPACKED // 2**20} MiB; data belongs on the workspace")
            content = (folder / path).read_bytes()
            entry = tarfile.TarInfo(path.as_posix())
            entry.size = len(content)
            entry.mode = 0o755 if about.st_mode & 0o111 else 0o644
            tar.addfile(entry, io.BytesIO(content))
        if not tar.getmembers():
            raise BadCode(f"code: {folder} holds no files")
    return archive.getvalue()


def _files_of(folder: Path) -> Iterator[Path]:
    """Regular files, links to files and folders followed. Raises BadCode for what would be missing elsewhere, and OSError."""
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in (*folders, *names):
            path = Path(place) / name
            if name in _LEFT_OUT or name.endswith(".pyc"):
                continue
            if path.is_symlink():
                _check_link(path, folder)
            if path.is_file():
                yield path.relative_to(folder)
            elif not path.is_dir():
                raise BadCode(f"code: {path} is no regular file")


def _check_link(link: Path, folder: Path) -> None:
    """One that leads out would be missing, or give away what is there; one that leads back would never end."""
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(folder.resolve()):
        raise BadCode(f"code: {link} is a link that leads out of the folder")
    if any(parent.resolve().is_relative_to(target) for parent in link.parents if parent.is_relative_to(folder)):
        raise BadCode(f"code: {link} is a link that leads to a folder it is in")


def _raise(error: OSError) -> NoReturn:
    raise error
