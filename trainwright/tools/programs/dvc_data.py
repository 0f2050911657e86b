"""Fetches a version of data with DVC: from a DVC or Git repository, or from a source that it versions in the workspace first.

`main` gets `target`, the folder to write to, and `have`, the names of what need not be fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dvc.api import DVCFileSystem

_CONFIG = """\
[core]
    analytics = false
    check_update = false
    no_scm = True
    remote = storage
['remote "storage"']
    url = ../../storage
"""
_REMOTE_SETTINGS = {
    "url", "region", "endpointurl", "use_ssl", "allow_anonymous_login", "version_aware", "worktree", "cache_regions", "read_timeout",
    "connect_timeout", "timeout", "jobs", "checksum_jobs", "no_traverse", "listobjects", "projectname", "account_name",
    "account_key", "sas_token", "connection_string", "access_key_id", "secret_access_key", "session_token", "user", "password",
    "port", "type", "method", "auth", "token", "replication",
}  # fmt: skip
"""What a repository may set for a remote: its address and its own credentials, but no file and no program."""
_PLACES_OF_DVC = ("cache", "state", "index", "db", "machine")
_OF_DVC = (".gitignore", ".dvcignore", "dvc.yaml", "dvc.lock")
_NOT_INSTALLED = re.compile(r"requires 'dvc-([a-z0-9]+)'")
_AT_ONCE = 8
_HEADROOM = 64 * 1024 * 1024
_CHUNK = 4 * 1024 * 1024


class BadInput(Exception):
    is_bad_input = True


class Failure(Exception):
    is_expected = True


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Fetch, and return `name` (a digest of the contents), `revision`, `md5` (DVC's), `files` and `fetched`.

    Where a library for the kind of remote is missing, `missing` is returned instead.
    """
    os.environ.setdefault("DVC_SITE_CACHE_DIR", str(Path(tempfile.gettempdir(), "dvc")))  # not the user's, nor on the workspace
    from dvc.config import ConfigError
    from dvc.exceptions import NotDvcRepoError
    from dvc.scm import RevError
    from dvc_objects.fs.errors import RemoteMissingDepsError

    try:
        return _from_repository(request) if request["repo"] else _from_source(request)
    except (BadInput, Failure, AssertionError, AttributeError, KeyError, TypeError):
        raise
    except Exception as error:  # whatever DVC and the clients of the remotes raise
        causes = list(_causes(error))
        missing = [cause.protocol for cause in causes if isinstance(cause, RemoteMissingDepsError)]
        missing += [name for cause in causes if isinstance(cause, ImportError) for name in _NOT_INSTALLED.findall(str(cause))]
        if missing:
            return {"missing": missing[0]}
        text = ": ".join(_texts(causes))
        if isinstance(error, ConfigError | NotDvcRepoError | RevError):
            raise BadInput(f"DVC: {text}") from error
        lacks = any(isinstance(cause, FileNotFoundError) for cause in causes)
        advice = "; has it been pushed (dvc push), and to this remote?" if request["repo"] and lacks else ""
        raise Failure(f"{type(error).__name__}: {text}{advice}") from error


def _from_repository(request: dict[str, Any]) -> dict[str, Any]:
    repo, rev = request["repo"], request["rev"] or _head(request["repo"])
    with _opened(repo, rev=rev, remote=request["remote"] or None) as files:
        _check_settings(files.repo)
        _check_imports(files.repo, request["path"])
        revision = files.repo.get_rev() if files.repo.scm.__class__.__name__ != "NoSCM" else ""
        print(f"{request['path']} of revision {revision or '(none)'}")
        if not revision:
            _check_links(files, Path(repo), request["path"].strip("/"))
        return {**_fetched(files, request["path"], request), "revision": revision}


def _check_links(files: DVCFileSystem, root: Path, path: str) -> None:
    """Refuse symbolic links out of a folder without Git, whose files are read as they lie; also in paths that imports name."""
    deps = [os.path.join(stage.wdir, dep.def_path) for stage in files.repo.index.stages if stage.is_import for dep in stage.deps]
    for name in (path, *(found.strip("/") for found in files.find(path)), *deps):
        if not Path(os.path.realpath(root / name)).is_relative_to(os.path.realpath(root)):
            raise BadInput(f"{name!r} leads out of the repository by a symbolic link")


def _check_settings(repo: Any) -> None:
    """Refuse what a repository of others must not set: files and programs of this machine, and how certificates are verified."""
    for level in ("repo", "local"):
        config = repo.config.load_one(level)
        for name, settings in (config.get("remote") or {}).items():
            if refused := sorted(set(settings) - _REMOTE_SETTINGS):
                raise BadInput(
                    f"the repository sets {', '.join(refused)} for its remote {name!r}, which no repository may: set credentials as "
                    "variables of the step (a Secret, a connection)"
                )
        if refused := sorted(section for section in _PLACES_OF_DVC if config.get(section)):
            raise BadInput(f"the repository sets {', '.join(refused)}: places of this machine, which no repository may")


def _check_imports(repo: Any, path: str) -> None:
    """Refuse data that DVC would read at its source, which the repository names: any file of this machine, or another repository."""
    wanted = Path(repo.root_dir, path.strip("/"))
    for stage in repo.index.stages:
        for dep, out in itertools.product(stage.deps if stage.is_import else (), stage.outs):
            made = Path(out.fs_path)
            if not (made.is_relative_to(wanted) or wanted.is_relative_to(made)):
                continue
            source = posixpath.normpath(posixpath.join(os.path.relpath(stage.wdir, repo.root_dir), dep.def_path))
            if getattr(dep, "def_repo", None) or ":/" in source or source.startswith(("/", "..")):
                raise BadInput(
                    f"{path!r} is an import from outside of the repository ({stage.relpath}): import it where it comes from, or "
                    "add the data itself (dvc add, dvc push)"
                )


def _from_source(request: dict[str, Any]) -> dict[str, Any]:
    """Version the source in the repository of the workspace, then fetch that version from the storage beside it."""
    repository = Path(request["repository"])
    _make_repository(repository)
    md5 = request["md5"] or _versioned(repository, request["source"])
    versions = sorted((repository / "versions" / md5).glob("*.dvc"))
    if not versions:
        raise BadInput(f"{repository} has no version {md5}; known: {', '.join(_known(repository)) or 'none'}")
    with _opened(str(repository)) as files:
        path = versions[0].relative_to(repository).with_suffix("").as_posix()
        return {**_fetched(files, path, request), "md5": md5, "revision": ""}


def _opened(repo: str, **options: Any) -> Any:
    return contextlib.closing(DVCFileSystem(repo, **options))


def _head(repo: str) -> str | None:
    """Return the commit of a local Git repository: what is not committed is no version. None where there is nothing to commit to."""
    if not os.path.isdir(repo):
        return None
    from dvc.scm import SCM, SCMError

    try:
        scm = SCM(repo)
    except SCMError:
        return None
    try:
        return str(scm.get_rev())
    finally:
        scm.close()


def _make_repository(repository: Path) -> None:
    """Make the repository, or complete one that a killed process left. The caller has locked it."""
    (repository / ".dvc" / "tmp").mkdir(parents=True, exist_ok=True)
    (repository.parent / "storage").mkdir(exist_ok=True)
    config = repository / ".dvc" / "config"
    if not config.is_file() or config.read_text("utf-8") != _CONFIG:
        _replace(config, _CONFIG)
    # Left by a killed process, maybe of another machine, whose process ids mean nothing here.
    for left in (*(repository / ".dvc" / "tmp").glob("*lock"), *(repository.parent / "storage" / "files" / "md5").glob(".*.tmp")):
        left.unlink(missing_ok=True)


def _versioned(repository: Path, source: str) -> str:
    """Import a source as it is now into the storage, unless it is as before. Returns the MD5 of that version."""
    from dvc.repo import Repo

    name = re.sub(r"[^\w.-]+", "_", posixpath.basename(source.rstrip("/").partition("?")[0])).strip(".") or "data"
    name = name.removesuffix(".dvc") or "data"
    folder = repository / "sources" / hashlib.sha256(source.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    stage_file, out = folder / f"{name}.dvc", folder / name
    _remove(out)
    with Repo(str(repository)) as repo:
        if not (stage_file.is_file() and _is_current(repo, stage_file)):
            print(f"a new version of {name}")
            stage_file.unlink(missing_ok=True)
            try:
                repo.imp_url(source, out=str(out), to_remote=True, remote="storage")
            except FileNotFoundError:
                raise BadInput(f"{source}: no such file or folder") from None
        made = repo.stage.load_file(str(stage_file))[0].outs[0]
        md5, content = str(made.hash_info.value), stage_file.read_text("utf-8")
    version = repository / "versions" / md5 / f"{name}.dvc"
    if not any(version.parent.glob("*.dvc")):
        version.parent.mkdir(parents=True, exist_ok=True)
        _replace(version, content[content.index("outs:") :])
    return md5


def _is_current(repo: Any, stage_file: Path) -> bool:
    """Whether the source is as when it was imported, and the storage has it."""
    from dvc.exceptions import DvcException

    try:
        [stage] = repo.stage.load_file(str(stage_file))
        stage.frozen = False
        storage = repo.cloud.get_remote_odb("storage")
        with repo.lock:
            return bool(storage.exists(stage.outs[0].hash_info.value)) and not stage.changed_deps()
    except (DvcException, ValueError, OSError):  # whatever it cannot tell is looked at anew
        return False


def _known(repository: Path) -> list[str]:
    return sorted(path.name for path in (repository / "versions").glob("*"))[:20]


def _fetched(files: DVCFileSystem, path: str, request: dict[str, Any]) -> dict[str, Any]:
    path = path.strip("/")
    try:
        about = files.info(path)
    except FileNotFoundError:
        near = ", ".join(sorted(posixpath.basename(name) for name in files.ls("", detail=False))[:20])
        raise BadInput(f"{path!r} is not in the repository; at its top there are {near or 'no files'}") from None
    found = _listed(files, path, about)
    if not found:
        raise BadInput(f"{path!r} has no files")
    name = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    result = {"name": name, "md5": _md5(about)[0], "files": len(found)}
    if name in request["have"]:
        return {**result, "fetched": False}
    target, needed = Path(request["target"]), int(about.get("size") or 0)
    target.mkdir(parents=True, exist_ok=True)
    if needed + _HEADROOM > (free := shutil.disk_usage(target).free):
        raise Failure(f"{needed} bytes are needed, {free} are free on the disk of the workspace; free up space")
    _download(files, path if about["type"] == "directory" else posixpath.dirname(path), found, target)
    return {**result, "fetched": True}


def _listed(files: DVCFileSystem, path: str, about: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return relative path, kind of digest and digest of each file, sorted."""
    if about["type"] != "directory":
        entries, top = {path: about}, posixpath.dirname(path)
    else:
        entries, top = {name.strip("/"): info for name, info in files.find(path, detail=True).items()}, path
    listed = []
    for name, info in entries.items():
        relative = posixpath.relpath(name, top or ".")
        if posixpath.basename(name) in _OF_DVC or name.endswith(".dvc"):
            continue
        if relative.startswith(("../", "/")) or ".." in relative.split("/"):
            raise BadInput(f"the version names {relative!r}, outside of its folder")
        digest, kind = _md5(info)
        if not digest:
            with files.open(name, "rb") as file:
                digest, kind = _digest(file), "md5"
        listed.append((relative, kind, digest))
    return sorted(listed)


def _md5(info: dict[str, Any]) -> tuple[str, str]:
    """Return DVC's digest of a file or a folder, and its kind; "" for what only Git tracks."""
    entry = (info.get("dvc_info") or {}).get("entry")
    hash_info = getattr(entry, "hash_info", None)
    return (str(hash_info.value), str(hash_info.name)) if hash_info else ("", "")


def _download(files: DVCFileSystem, top: str, found: list[tuple[str, str, str]], target: Path) -> None:
    """Fetch what a killed process has not fetched yet, and compare each file with its digest."""
    names = {one[0] for one in found}
    for left in [path for path in target.rglob("*") if not path.is_dir() and path.relative_to(target).as_posix() not in names]:
        left.unlink()
    missing = [one for one in found if not _matches(target / one[0], one)]
    print(f"fetching {len(missing)} of {len(found)} files", flush=True)

    def fetch(one: tuple[str, str, str]) -> None:
        path = target / one[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(posixpath.join(top, one[0]), str(path))
        if one[1] == "md5" and not _matches(path, one):
            raise Failure(f"{one[0]}: the MD5 of what was fetched differs from {one[2]}; the remote's copy is damaged")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetch, missing))


def _matches(path: Path, one: tuple[str, str, str]) -> bool:
    """Whether a file is there as it should be. Earlier versions of DVC took the MD5 of a text with other line ends."""
    if one[1] != "md5" or not path.is_file():
        return False
    with path.open("rb") as file:
        return _digest(file) == one[2]


def _digest(file: Any) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _causes(error: BaseException) -> Iterator[Any]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _texts(causes: list[Any]) -> list[str]:
    """Return what an error and its causes say, which DVC's own text often leaves out."""
    texts: list[str] = []
    for cause in causes:
        if (text := str(cause).strip()) and not any(text in seen for seen in texts):
            texts.append(text)
    return texts or [type(causes[0]).__name__]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
