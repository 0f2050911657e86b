"""Packs a folder of code, or a revision of a git repository, into one archive that is identified by its digest.

The archive is reproducible: sorted names, no timestamps, no owners.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PART_BYTES = 900 * 1024
"""Size of a part; ConfigMaps are limited to 1 MiB."""
MAX_PARTS = 8
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_GIT = re.compile(
    r"git\+(?P<url>(?:https|ssh|file)://(?:[^@#\s/]+@)?[^@#\s/]*/[^@#\s]+)@(?P<revision>[^@#\s]+)(?:#subdirectory=(?P<folder>[^#]+))?"
)
_GIT_SECONDS = 300
_PYTHON_PROGRAMS = ("python", "python3", "torchrun", "accelerate", "deepspeed")
_MOST_NAMED = 10
_GIT_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
"""Variables that git sets for its hooks; with them git would write to the caller's repository."""
_EXCLUDED = frozenset(
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
"""Caches, virtual environments, version control data, and `.env`, which often contains credentials."""


class BadCode(ValueError):
    """The code cannot be packed; the message states the cause and a fix."""


_WORKSPACE = "/workspace"


@dataclass(frozen=True)
class PackedCode:
    """`digest` is the SHA-256 of the uncompressed archive in hexadecimal; `parts` are its compressed bytes."""

    digest: str
    parts: tuple[bytes, ...]
    source: str
    """The folder, or the repository with its commit."""
    names_workspace: bool = False
    """Whether a file of it names the place where a workspace is mounted."""


def pack_code(code: str, command: Sequence[str] = ()) -> PackedCode:
    """Pack a folder, or `git+https://HOST/PATH@REVISION[#subdirectory=FOLDER]`.

    Raises BadCode, also if `command` starts a Python file that is not in it: every node would fail, again and again.
    """
    if not code.startswith("git+"):
        folder = Path(code.removeprefix("file://")).expanduser()
        if not folder.is_dir():
            raise BadCode(
                f"code: {code!r} is not a folder on the machine that submits the job (in Airflow, the worker); specify one, or "
                "git+https://HOST/PATH@REVISION"
            )
        return _pack(folder, str(folder), command)
    match = _GIT.fullmatch(code)
    if match is None or match["revision"].startswith("-"):
        raise BadCode(f"code: {code!r} is not of the form git+https://HOST/PATH@REVISION[#subdirectory=FOLDER]")
    with tempfile.TemporaryDirectory(prefix="trainwright-code-") as clone:
        commit = _fetch(match["url"], match["revision"], Path(clone))
        root = Path(clone).resolve()
        folder = (root / (match["folder"] or ".")).resolve()
        is_inside = folder.is_relative_to(root) and not _EXCLUDED & {*folder.relative_to(root).parts}
        if not is_inside or not folder.is_dir():
            raise BadCode(f"code: {match['url']} has no folder {match['folder']!r} at {match['revision']}")
        return _pack(folder, f"{match['url']}@{commit}", command)


def _fetch(url: str, revision: str, clone: Path) -> str:
    """Check out a revision; returns its commit. Fetches only that revision if the server supports it."""
    _git(clone, "init", "--quiet")
    _git(clone, "remote", "add", "origin", url)
    try:
        _git(clone, "fetch", "--quiet", "--depth", "1", "origin", "--", revision)
        revision_to_check_out = "FETCH_HEAD"
    except BadCode:  # an abbreviated commit, or a server that does not serve single commits
        _git(clone, "fetch", "--quiet", "--tags", "origin")
        revision_to_check_out = revision
    _git(clone, "checkout", "--quiet", revision_to_check_out, "--")
    return _git(clone, "rev-parse", "HEAD").strip()


def _git(clone: Path, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in _GIT_HOOK_VARIABLES}
    env = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **env, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
    command = ["git", "-C", str(clone), *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False, env=env
        )
    except FileNotFoundError:
        raise BadCode("code: git is not installed; install it, or use a local folder") from None
    except subprocess.TimeoutExpired:
        raise BadCode(f"code: git {arguments[0]} took more than {_GIT_SECONDS} s") from None
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadCode(f"code: git {arguments[0]} failed: {message}")
    return done.stdout


def _require_program(folder: Path, source: str, command: Sequence[str]) -> None:
    """Raise BadCode if the command starts a Python file that does not exist; of other programs nothing is known."""
    starts_python = command and (command[0].endswith(".py") or Path(command[0]).name in _PYTHON_PROGRAMS)
    script = next((word for word in command if word.endswith(".py")), "") if starts_python else ""
    # known only in the container, or there
    if not script or Path(script).is_absolute() or "$" in script or (folder / script).exists():
        return
    found = ", ".join(sorted(path.name for path in folder.glob("*.py"))[:_MOST_NAMED]) or "none"
    raise BadCode(f"command: {script!r} is not in {source}; Python files there: {found}")


def _pack(folder: Path, source: str, command: Sequence[str]) -> PackedCode:
    _require_program(folder, source, command)
    try:
        content = _archive_of(folder, source)
    except OSError as error:
        raise BadCode(f"code: {error.filename} cannot be read: {error.strerror}") from None
    packed = lzma.compress(content)
    if len(packed) > PART_BYTES * MAX_PARTS:
        limit = PART_BYTES * MAX_PARTS // 2**20
        raise BadCode(
            f"code: {source} is {len(packed) // 2**20} MiB when packed, and the limit is {limit} MiB; build an image, or use the "
            "workspace"
        )
    parts = tuple(packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES))
    return PackedCode(hashlib.sha256(content).hexdigest(), parts, source, _WORKSPACE.encode() in content)


def _archive_of(folder: Path, source: str) -> bytes:
    """Return the tar archive of a folder. Raises BadCode, OSError."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(_files_of(folder)):
            status = (folder / path).stat()
            if archive.tell() + status.st_size > MAX_UNPACKED_BYTES:
                raise BadCode(f"code: {source} has more than {MAX_UNPACKED_BYTES // 2**20} MiB; data belongs on the workspace")
            content = (folder / path).read_bytes()
            entry = tarfile.TarInfo(path.as_posix())
            entry.size = len(content)
            entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
            tar.addfile(entry, io.BytesIO(content))
        if not tar.getmembers():
            raise BadCode(f"code: {folder} contains no files")
    return archive.getvalue()


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the regular files, following links. Raises BadCode for files that cannot be packed, and OSError."""
    for directory, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if name not in _EXCLUDED]
        for name in (*folders, *names):
            path = Path(directory) / name
            if name in _EXCLUDED or name.endswith(".pyc"):
                continue
            if path.is_symlink():
                _check_link(path, folder)
            if path.is_file():
                yield path.relative_to(folder)
            elif not path.is_dir():
                raise BadCode(f"code: {path} is not a regular file")


def _check_link(link: Path, folder: Path) -> None:
    """Reject a link out of the folder, which could expose other files, and a link to a parent folder, which would not terminate."""
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(folder.resolve()):
        raise BadCode(f"code: {link} is a link to a target outside the folder")
    if any(parent.resolve().is_relative_to(target) for parent in link.parents if parent.is_relative_to(folder)):
        raise BadCode(f"code: {link} is a link to one of its parent folders")


def _raise(error: OSError) -> NoReturn:
    raise error
