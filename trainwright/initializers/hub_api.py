"""The requests to the Hugging Face Hub that a download needs: the commit of a revision, and its files with sizes and digests.

Two GET requests without `huggingface_hub`, whose import alone takes 0.2 s.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from trainwright.initializers.errors import InitializerError
from trainwright.storage.errors import BadUri, StorageError, Unreachable
from trainwright.storage.http.client import HttpClient
from trainwright.storage.http.content_digest import ContentDigest
from trainwright.storage.http.errors import HttpError
from trainwright.storage.http.hub_environment import hub_endpoint, hub_token
from trainwright.storage.http.retries import Retries
from trainwright.storage.uri import StorageUri

_MAX_ANSWER = 64 * 1024 * 1024
_MAX_PAGES = 10_000
_MAX_NAME = 96
_MAX_LINK = 4096
_NEXT = re.compile(r'<([^<>]{1,4096})>; rel="next"')
_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; `name` is relative to the folder of the URI, `path` to the repository."""

    name: str
    path: str
    size: int
    digest: ContentDigest


class HubRepository:
    """One repository of the hub, as the URI and the kind of the source name it. Raises InitializerError for an impossible name."""

    def __init__(self, uri: StorageUri, kind: str, environ: Mapping[str, str]):
        _check_name(uri)
        self.uri, self.kind = uri, kind
        self.endpoint = hub_endpoint(environ)
        self.client = HttpClient(token=hub_token(environ), token_for=self.endpoint, environ=environ)

    def commit(self, revision: str, retries: Retries) -> str:
        """Return the commit of a revision. Raises InitializerError, StorageError."""
        commit = self._get(f"{self._api}/revision/{quote(revision, safe='')}?expand=sha", retries)[0]
        found = commit.get("sha") if isinstance(commit, dict) else None
        if not isinstance(found, str) or not _HEX.fullmatch(found):
            raise StorageError(f"{self.uri}: the hub names no commit for the revision {revision!r}")
        return found

    def files(self, commit: str, retries: Retries) -> list[HubFile]:
        """List the files below the folder of the URI, or the one file that it names. Raises InitializerError, StorageError."""
        folder = self.uri.folder
        try:
            return [_hub_file(entry, f"{folder}/" if folder else "", self.uri) for entry in self._tree(commit, folder, retries)]
        except _EntryNotFound:
            parent, _, _ = folder.rpartition("/")
            with contextlib.suppress(_EntryNotFound):
                entries = self._tree(commit, parent, retries, recursive=False)
                found = [_hub_file(entry, f"{parent}/" if parent else "", self.uri) for entry in entries]
                if single := [each for each in found if each.path == folder]:
                    return single
            raise InitializerError(f"{self.uri}: the repository has no file or folder {folder!r}") from None

    def file_url(self, commit: str, path: str) -> str:
        prefix = "datasets/" if self.kind == "dataset" else ""
        return f"{self.endpoint}/{prefix}{self.uri.location}/resolve/{quote(commit, safe='')}/{quote(path)}"

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors: InitializerError if the source is unusable, StorageError if a retry may succeed."""
        try:
            yield
        except HttpError as error:
            raise self._converted(error) from None
        except Unreachable as error:
            raise StorageError(f"{self.uri}: the hub cannot be reached: {error}") from None
        except BadUri as error:
            raise InitializerError(f"{self.uri}: the address of the hub or of a redirect: {error}") from None

    @property
    def _api(self) -> str:
        return f"{self.endpoint}/api/{self.kind}s/{self.uri.location}"

    def _tree(self, commit: str, folder: str, retries: Retries, *, recursive: bool = True) -> list[dict[str, Any]]:
        address = f"{self._api}/tree/{quote(commit, safe='')}{'/' + quote(folder) if folder else ''}"
        query = f"recursive={'true' if recursive else 'false'}&expand=false"
        entries: list[dict[str, Any]] = []
        for _ in range(_MAX_PAGES):
            page, link = self._get(f"{address}?{query}", retries)
            if not isinstance(page, list) or not all(isinstance(entry, dict) for entry in page):
                raise StorageError(f"{self.uri}: the hub's list of files is not valid")
            entries += (entry for entry in page if entry.get("type") == "file")
            following = _NEXT.search(link)
            if following is None:
                return entries
            query = urlsplit(following[1]).query  # the address may be that of another host, behind a mirror
        raise StorageError(f"{self.uri}: the hub's list of files has more than {_MAX_PAGES} pages")

    def _get(self, url: str, retries: Retries) -> tuple[Any, str]:
        """Return the parsed JSON and the Link header."""
        with self.errors():
            content, headers = retries.call(lambda: self.client.read(url, _MAX_ANSWER))
        try:
            return json.loads(content), headers.get("Link", "")[:_MAX_LINK]
        except (ValueError, RecursionError):
            raise StorageError(f"{self.uri}: the hub's answer is not JSON; check HF_ENDPOINT") from None

    def _converted(self, error: HttpError) -> Exception:
        if error.code == "GatedRepo":
            return InitializerError(
                f"{self.uri} is gated: accept its terms on the hub, and set a token in ACCESS_TOKEN or HF_TOKEN"
            )
        if error.code == "RevisionNotFound":
            hint = "; write a slash in a revision as %2F" if self.uri.folder else ""
            return InitializerError(f"{self.uri}: there is no revision {self.uri.revision!r}{hint}")
        if error.code == "EntryNotFound":
            return _EntryNotFound(f"{self.uri}: the hub has no such file")
        if error.status == 401 and error.detail.startswith("Invalid credentials"):
            return InitializerError(f"{self.uri}: the hub rejects the token; check ACCESS_TOKEN or HF_TOKEN")
        if error.code == "RepoNotFound" or error.status in (401, 404):
            return InitializerError(
                f"{self.uri}: the hub has no such {self.kind}, or it is private and no token with access to it was given"
            )
        return StorageError(f"{self.uri}: the hub answers: {error}")


class _EntryNotFound(StorageError):
    """The commit has no such file or folder."""


def _check_name(uri: StorageUri) -> None:
    """The hub answers a request for such a name with an unspecific error."""
    name = uri.location.rpartition("/")[2]
    if "--" in uri.location or ".." in uri.location or name[-1] in "-." or name.endswith(".git") or len(uri.location) > _MAX_NAME:
        raise InitializerError(
            f"{uri}: {name!r} is not a name on the hub: without -- and .., not ending in -, . or .git, up to {_MAX_NAME} characters"
        )


def _hub_file(entry: dict[str, Any], prefix: str, uri: StorageUri) -> HubFile:
    path, size, oid, lfs = entry.get("path"), entry.get("size"), entry.get("oid"), entry.get("lfs")
    if isinstance(lfs, dict):
        size, oid = lfs.get("size", size), lfs.get("oid")
    is_valid = isinstance(path, str) and isinstance(size, int) and size >= 0 and isinstance(oid, str) and _HEX.fullmatch(oid)
    if not is_valid or not isinstance(path, str) or not isinstance(size, int) or "\0" in path or not path.startswith(prefix):
        raise StorageError(f"{uri}: the hub's list of files is not valid")
    return HubFile(path[len(prefix) :], path, size, ContentDigest("sha256" if isinstance(lfs, dict) else "git-sha1", str(oid)))
