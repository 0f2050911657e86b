"""Pulls a version of data with DVC into the workspace: from a DVC repository, or from any source that DVC versions here first.

The default needs no repository of the user: one below `WORKSPACE/dvc` records every version of a source, with its contents beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainwright.storage.locks import file_lock
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.text.foreign_texts import shown_uri, without_user
from trainwright.tools.content_folder import find_folder, publish_folder, receipt_of
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import BadToolInput, ToolFailed
from trainwright.tools.run_tool import run_tool
from trainwright.workspace.receipt import Receipt

DVC_FOLDER = "dvc"
KIND = "dvc-data"
TIMEOUT_SECONDS = 6 * 3600.0
_VERSIONS = ">=3.67,<4"
_EXTRAS = {
    **{"s3": "s3", "gs": "gs", "gcs": "gs", "azure": "azure", "az": "azure", "abfs": "azure", "abfss": "azure", "ssh": "ssh"},
    **{"hdfs": "hdfs", "webhdfs": "webhdfs", "webdav": "webdav", "webdavs": "webdav", "oss": "oss", "gdrive": "gdrive"},
}
_VARIABLES = (
    *("AWS_*", "AZURE_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "STORAGE_EMULATOR_HOST", "OSS_*", "GDRIVE_*", "HADOOP_*"),
    *("DVC_*", "GIT_*", "SSH_AUTH_SOCK", "KRB5*"),
)
_ATTEMPTS = 3
_MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")


@dataclass(frozen=True)
class DvcData:
    """A version of data in the workspace.

    `digest` is that of the files' contents, `md5` DVC's own of the path (empty for what only Git tracks), `revision` the Git commit
    (empty without Git), `size` in bytes.
    """

    folder: Path
    receipt: Receipt
    md5: str
    revision: str

    @property
    def digest(self) -> str:
        return self.receipt.digest

    @property
    def size(self) -> int:
        return sum(file.size for file in self.receipt.files)

    @property
    def files(self) -> int:
        return len(self.receipt.files)


def dvc_requirements(extra: str = "") -> list[str]:
    """Return what the environment of DVC needs for a kind of remote: s3, gs, azure, ssh ...; empty for http and local ones."""
    return [f"dvc[{extra}]{_VERSIONS}" if extra else f"dvc{_VERSIONS}"]


def pull_dvc_data(
    workspace: Path,
    *,
    source: str = "",
    md5: str = "",
    repo: str = "",
    path: str = "",
    rev: str = "",
    remote: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
    on_line: Callable[[str], None] | None = None,
) -> DvcData:
    """Pull a version of data to `workspace/dvc/data/HEX`. What is there already is not fetched again.

    Args:
        workspace: Folder of the workspace.
        source: Without `repo`: a path, file://, or another address of `dvc import-url`. Its present state becomes a version.
        md5: Without `repo`: DVC's MD5 of an earlier version, which is fetched instead of the present one.
        repo: Address of a Git repository with DVC, or a local folder. Of a local one its last commit counts.
        path: File or folder in `repo`.
        rev: Branch, tag or commit of `repo`. Empty: the default branch.
        remote: Name of the DVC remote. Empty: the repository's default.
        timeout_seconds: How long it may take, the installation of DVC not included.
        on_line: Called with each line of output, in another thread.

    Raises BadToolInput, ToolFailed, ToolTimeout, ToolUnavailable, StorageError.
    """
    source = _checked(source, md5, repo, path, rev, remote)
    root = workspace.absolute() / DVC_FOLDER
    request: dict[str, Any] = {"repo": repo, "path": path, "rev": rev, "remote": remote, "source": source, "md5": md5}
    purpose = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    shown = shown_uri(repo or source or f"md5:{md5}").strip("'\"")
    with disk_errors(root):
        for folder in ("data", "repository"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        with scratch_folder(root / "data" / purpose, purpose, keep=True) as scratch:
            request |= {"target": str(scratch / "data"), "repository": str(root / "repository")}
            for _ in range(_ATTEMPTS):
                # What is said to be there is looked at below, and removed if it has been changed: then it is fetched.
                request["have"] = [each.name for each in (root / "data").iterdir() if not each.name.startswith(".")]
                answer = _run(root, scratch, request, source or repo, timeout_seconds, on_line)
                target = root / "data" / answer["name"]
                receipt = find_folder(target)
                if receipt is None and answer["fetched"]:
                    receipt = receipt_of(
                        scratch / "data",
                        KIND,
                        source=shown,
                        revision=answer["revision"] or answer["md5"],
                        options={"path": path, "rev": rev} if repo else {},
                        details={"md5": answer["md5"]},
                    )
                    receipt = publish_folder(scratch / "data", target, receipt)
                if receipt is not None:
                    return DvcData(target, receipt, md5=answer["md5"], revision=answer["revision"])
    raise ToolFailed(
        f"{root / 'data'}: another process changed the data at every attempt; check what else writes to the workspace"
    )


def _run(
    root: Path,
    scratch: Path,
    request: dict[str, Any],
    address: str,
    timeout_seconds: float,
    on_line: Callable[[str], None] | None,
) -> dict[str, Any]:
    """Run the program, once more with the library for the remote if only the repository's settings say which it needs."""
    extra = _EXTRAS.get(urlsplit(address).scheme, "") if not request["repo"] else ""
    for _ in range(2):
        python = tool_environment(dvc_requirements(extra), name="dvc")
        # The scratch folder of a caller that was killed may still have its program, for a moment.
        paths = [scratch.with_name("program.lock"), *([] if request["repo"] else [root / ".repository.lock"])]
        with disk_errors(root), ExitStack() as stack:
            locks = [stack.enter_context(file_lock(path, timeout=timeout_seconds)) for path in paths]
            answer = run_tool(
                "dvc_data",
                request,
                python=python,
                timeout_seconds=timeout_seconds,
                on_line=on_line,
                variables=_VARIABLES,
                environment={"DVC_NO_ANALYTICS": "1", "DVC_STUDIO_OFFLINE": "1", "GIT_TERMINAL_PROMPT": "0"},
                locks=locks,
            )
        if "missing" not in answer:
            return answer
        extra = _EXTRAS.get(answer["missing"], "")
        if not extra:
            break
    raise ToolFailed(f"DVC has no support for {answer['missing']}:// in this environment")


def _checked(source: str, md5: str, repo: str, path: str, rev: str, remote: str) -> str:
    """Return the source as DVC takes it. Raises BadToolInput for a combination that says nothing, or too much."""
    if repo:
        if source or md5:
            raise BadToolInput("repo: give either a repository with a path, or a source or md5")
        if not path.strip("/"):
            raise BadToolInput("path: required with repo, the file or folder in the repository")
        return ""
    if path or rev or remote:
        raise BadToolInput("path, rev and remote: only with repo")
    if md5 and not _MD5.fullmatch(md5):
        raise BadToolInput(f"md5: {md5!r} is not an MD5 of DVC; expected 32 hexadecimal digits, with .dir for a folder")
    if not source:
        if not md5:
            raise BadToolInput("source: required without repo")
        return ""
    if "://" not in source or source.startswith("file://"):
        local = unquote(source.removeprefix("file://")) if source.startswith("file://") else source
        if not os.path.isabs(local):
            raise BadToolInput(f"source: {source!r} is not an absolute path; expected /path, file:///path or another address")
        return os.path.normpath(local)
    if without_user(source) != source:
        raise BadToolInput(f"source: {shown_uri(source)} contains a user or a password, which DVC would store; use its variables")
    return source
