"""A repository of the Hugging Face Hub through `huggingface_hub` (extra `hub`): its commits, its files with sizes and digests, and
their contents, with our errors.

The library reads its variables (HF_HOME, HF_HUB_OFFLINE, HF_HUB_DISABLE_XET) when it is imported, which takes 0.2 s: only here, and
only for hf:// sources.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.hub_cache import hub_library
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.http.client import (
    HttpClient,
    HttpError,
    Retries,
    check_token,
    is_transient,
    retry_after,
    tls_context,
    unreachable,
)
from trainwright.storage.http.download import ContentDigest, RemoteFile
from trainwright.storage.http.hub_environment import http_library, hub_endpoint
from trainwright.storage.plain_files import ProgressCallback
from trainwright.storage.uri import StorageUri, checked_address, origin, redirect_target, shown_address
from trainwright.text.foreign_texts import without_credentials

T = TypeVar("T")
_SECONDS = 10.0
"""Until the hub answers, and between two pieces of an answer; as the library has it for files."""
_MAX_FILES = 1_000_000
_MAX_PAGES = 10_000
_MAX_ANSWER = 64 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_CHATTY = ("httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub")
"""Loggers with a line for each request, whose addresses may be signed, and for each of the library's retries."""


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; `name` is relative to the folder of the URI, `path` to the repository."""

    name: str
    path: str
    size: int
    digest: ContentDigest
    is_xet: bool


class HubRepository:
    """One repository of the hub, as the URI and the kind of the source name it. To be used within `connected`.

    Methods raise InitializerError if the source is unusable; HttpError, Unreachable and StorageError if a retry may succeed.
    """

    def __init__(self, uri: StorageUri, kind: str):
        self._hub = hub_library(uri)
        from huggingface_hub.utils._runtime import is_xet_available

        self._has_xet = is_xet_available()
        self.uri, self.kind, self.endpoint = uri, kind, hub_endpoint(os.environ)
        # Without one, the library takes that of HF_TOKEN, or of a login.
        self._token = os.environ.get("ACCESS_TOKEN", "").strip() or None
        check_token(self._token or "")
        self._api = self._hub.HfApi(endpoint=self.endpoint, token=self._token, library_name="trainwright")
        self._pages = 0

    @contextlib.contextmanager
    def connected(self) -> Iterator[HubRepository]:
        """Let the library use a client that keeps our rules, and log nothing of each request, while the block runs."""
        from huggingface_hub.utils import _http

        previous = _http._GLOBAL_CLIENT_FACTORY
        levels = {name: logging.getLogger(name).level for name in _CHATTY}
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
        self._hub.set_client_factory(self._client)
        try:
            yield self
        finally:
            self._hub.set_client_factory(previous)
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)

    def _client(self) -> Any:
        hooks = {"request": [self._check_request]}
        headers = {"Accept-Encoding": "identity"}  # a small compressed answer may be any size in memory
        library, trusted = http_library(), tls_context()
        try:
            made = library.Client(headers=headers, event_hooks=hooks, follow_redirects=True, timeout=_SECONDS, verify=trusted)
        except (ImportError, ValueError, library.InvalidURL):  # another scheme, or one that needs another package
            raise StorageError(f"{self.uri}: a proxy of the environment is not supported; expected http://host:port") from None
        made.send = functools.partial(self._send, made.send)
        return made

    def _send(self, send: Callable[..., Any], request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send a request of the library. What may pass is our error, which it does not retry: `Retries` does, within one budget."""
        try:
            response = send(request, stream=True, **options)
            if not stream:
                response = self._whole(response)
        except http_library().TransportError as error:
            raise unreachable(f"{self.uri}: the hub", error) from None
        self._check_xet(response)
        refusal = HttpError(str(self.uri), response.status_code, retry_after=retry_after(response.headers))
        if is_transient(refusal):
            response.close()
            raise refusal
        return response

    def _whole(self, response: Any) -> Any:
        """Return a response with its whole body, of which the library reads as much as there is. Raises StorageError."""
        content = bytearray()
        with contextlib.closing(response):
            for piece in response.iter_raw():
                content += piece
                if len(content) > _MAX_ANSWER:
                    raise StorageError(f"{self.uri}: an answer of the hub is larger than {_MAX_ANSWER} bytes")
        if content and response.headers.get("Content-Encoding", "identity") != "identity":
            raise StorageError(f"{self.uri}: the hub compresses its answer, although it was asked not to")
        answer = {"headers": response.headers, "request": response.request, "history": response.history}
        return http_library().Response(response.status_code, content=bytes(content), **answer)

    def _check_xet(self, response: Any) -> None:
        """Refuse addresses for the client of xet, which sends the token of the hub to any. Raises BadUri, StorageError."""
        from huggingface_hub.constants import HUGGINGFACE_CO_URL_HOME

        for url in (response.links.get("xet-auth", {}).get("url", ""), response.headers.get("X-Xet-Refresh-Route", "")):
            # The library replaces the address of the public hub by that of the endpoint.
            if url and not url.startswith(HUGGINGFACE_CO_URL_HOME) and origin(url) != origin(self.endpoint):
                raise StorageError(f"{self.uri}: the hub sends its token to another server: {shown_address(url)}")
        if (store := response.headers.get("X-Xet-Cas-Url", "")).startswith("http:"):
            checked_address(store)

    def _check_request(self, request: Any) -> None:
        """Called before each request, also of a redirect. Raises BadUri, StorageError."""
        url = str(request.url)
        checked_address(url)
        redirect_target(self.endpoint, url)  # never from https to http
        if "/tree/" in request.url.path:
            self._pages += 1
            if self._pages > _MAX_PAGES:
                raise StorageError(f"{self.uri}: the hub's list has more than {_MAX_PAGES} pages")
        if origin(url) == origin(self.endpoint):  # the token is for this server
            return
        if request.url.path.startswith("/api/"):  # the next page of a list: a mirror repeats the address of the original
            scheme, host, port = origin(self.endpoint)
            request.url = request.url.copy_with(scheme=scheme, host=host, port=port)
            request.headers["Host"] = request.url.netloc.decode()
        else:
            request.headers.pop("Authorization", None)

    def commit(self, revision: str, retries: Retries) -> str:
        """Return the commit of a revision."""

        def ask() -> str:
            info = self._api.repo_info(self.uri.location, repo_type=self.kind, revision=revision, timeout=_SECONDS)
            found = info.sha
            if not isinstance(found, str) or not _HEX.fullmatch(found):
                raise StorageError(f"{self.uri}: the hub names no commit for the revision {revision!r}")
            return found

        return self._call(ask, retries)

    def files(self, commit: str, retries: Retries) -> list[HubFile]:
        """List the files below the folder of the URI, or the one file that it names."""
        folder = self.uri.folder
        try:
            return self._list(commit, folder, retries)
        except _EntryNotFound:  # the hub lists folders only: it may be a file
            parent, _, _ = folder.rpartition("/")
            with contextlib.suppress(_EntryNotFound):
                if single := [each for each in self._list(commit, parent, retries, recursive=False) if each.path == folder]:
                    return single
            raise InitializerError(f"{self.uri}: the repository has no file or folder {folder!r}") from None

    def _list(self, commit: str, folder: str, retries: Retries, *, recursive: bool = True) -> list[HubFile]:
        def ask() -> list[HubFile]:
            self._pages = 0
            entries = self._api.list_repo_tree(
                self.uri.location, folder or None, recursive=recursive, revision=commit, repo_type=self.kind
            )
            prefix = f"{folder}/" if folder else ""
            found = [self._file(each, prefix) for each in itertools.islice(entries, _MAX_FILES) if hasattr(each, "blob_id")]
            if next(iter(entries), None) is not None:
                raise StorageError(f"{self.uri}: the hub's list has more than {_MAX_FILES} files")
            if len({each.path for each in found}) < len(found):  # two threads would write one file
                raise TypeError
            return found

        return self._call(ask, retries)

    def _file(self, entry: Any, prefix: str) -> HubFile:
        path, size, oid = entry.path, entry.size, entry.blob_id
        if entry.lfs is not None:
            size, oid = entry.lfs.size, entry.lfs.sha256
        if not (isinstance(path, str) and path.startswith(prefix) and "\0" not in path and isinstance(size, int) and size >= 0):
            raise TypeError
        path.encode()  # not with half of a surrogate pair, which no file name can have
        if not _HEX.fullmatch(oid):
            raise TypeError
        digest = ContentDigest("git-sha1" if entry.lfs is None else "sha256", oid)
        is_xet = self._has_xet and getattr(entry, "xet_hash", None) is not None
        return HubFile(path[len(prefix) :], path, size, digest, is_xet)

    def remote(self, file: HubFile, commit: str) -> RemoteFile:
        """Return where a file is fetched by http, with the client of `client`."""
        url = self._hub.hf_hub_url(self.uri.location, file.path, repo_type=self.kind, revision=commit, endpoint=self.endpoint)
        return RemoteFile(f"{self.uri}: {file.name}", url, file.size, file.digest)

    def client(self) -> HttpClient:
        from huggingface_hub import constants

        is_implicit = self._token is None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
        token = self._hub.get_token() if is_implicit else self._token
        return HttpClient(token=token or "", token_for=self.endpoint)

    def fetch_by_xet(self, file: HubFile, commit: str, folder: Path, on_progress: ProgressCallback) -> Path:
        """Fetch a whole file into a folder of this call by the hub's own protocol. Returns its path. Its contents are not checked."""
        with self.errors():
            path = self._hub.hf_hub_download(
                self.uri.location,
                file.path,
                repo_type=self.kind,
                revision=commit,
                local_dir=folder,
                cache_dir=folder,  # not a copy of another program's cache
                token=self._token,
                endpoint=self.endpoint,
                tqdm_class=_progress_bar(on_progress),
            )
        return Path(path)

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Convert the errors of our client."""
        try:
            yield
        except HttpError as error:
            raise self._refusal(error.status, error.headers) from None
        except BadUri as error:
            raise self._bad_address(error) from None

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the errors of the library, and those of our checks. Its texts may have addresses with signatures."""
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        try:
            yield
        except HfHubHTTPError as error:
            raise self._refusal(error.response.status_code, error.response.headers) from None
        except BadUri as error:
            raise self._bad_address(error) from None
        except HFValidationError as error:
            raise InitializerError(f"{self.uri}: {without_credentials(error)}") from None
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            raise StorageError(f"{self.uri}: the hub's answer is not valid; check HF_ENDPOINT") from None
        except (http_library().HTTPError, OSError, RuntimeError) as error:  # too many redirects, and whatever fails in xet
            raise StorageError(f"{self.uri}: the hub's client failed: {without_credentials(error)}") from None

    def _bad_address(self, error: BadUri) -> InitializerError:
        return InitializerError(f"{self.uri}: the address of the hub or of a redirect: {error}")

    def _call(self, request: Callable[[], T], retries: Retries) -> T:
        def converted() -> T:
            with self.errors():
                return request()

        return retries.call(converted)

    def _refusal(self, status: int, headers: Mapping[str, str]) -> Exception:
        uri, code = self.uri, headers.get("X-Error-Code", "")
        if code == "GatedRepo":
            return InitializerError(f"{uri} is gated: accept its terms on the hub, and set a token in ACCESS_TOKEN or HF_TOKEN")
        if code == "RevisionNotFound":
            hint = "; write a slash in a revision as %2F" if uri.folder else ""
            return InitializerError(f"{uri}: there is no revision {uri.revision!r}{hint}")
        if code == "EntryNotFound":
            return _EntryNotFound(f"{uri}: the hub has no such file")
        if status == 401 and headers.get("X-Error-Message", "").startswith("Invalid credentials"):
            return InitializerError(f"{uri}: the hub rejects the token; check ACCESS_TOKEN or HF_TOKEN")
        if code == "RepoNotFound" or status == 401:
            return InitializerError(
                f"{uri}: the hub has no such {self.kind}, or it is private and no token with access to it was given"
            )
        return HttpError(str(uri), status, retry_after=retry_after(headers))


class _EntryNotFound(StorageError):
    """The commit has no such file or folder."""


def _progress_bar(on_progress: ProgressCallback) -> Any:
    """Return a class that the library makes a progress bar of, and which shows none."""

    class Bar:
        def __init__(self, **_: object):
            pass

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, count: float) -> None:
            on_progress(int(count))

        def ignore(self, *_: object, **__: object) -> None:
            pass

        # Xet counts what it receives beside what it writes.
        update_transfer = set_postfix_str = set_transfer_postfix_str = ignore

    return Bar
