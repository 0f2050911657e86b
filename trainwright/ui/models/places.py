"""Which stores the page reads with the rights of its server, and how: URIs come from users, and from objects that others write.

The folders of exports that the page can open are those of its settings, those that TrainJobs name, and those that runs exported to.
What jobs and runs name was written by others, so such a folder is only offered: nothing is sent to its store before a user opens
it. Local folders that the runs of this machine have exported to are listed at once.

A store that hangs must not take the threads of the page with it: calls have a time limit. A thread cannot be stopped, so a call
that is too slow goes on in the background, and only so many of them run per store.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TypedDict, TypeVar

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.jobs.request.workspace import export_uri_of
from trainwright.storage.errors import StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.open import open_store
from trainwright.storage.store import Store
from trainwright.storage.uri import StorageUri
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Json, Page
from trainwright.ui.models.foreign_json import shown_text
from trainwright.ui.models.workspaces import WorkspaceFolder, find_workspaces, variables_of
from trainwright.workspace.layout import RUNS
from trainwright.workspace.run_record import read_run

SCHEMES = ("file", "s3", "gs", "az")
MAX_URI = 2_000
_MAX_JOBS, _MAX_RUNS, _MAX_SOURCES = 2_000, 2_000, 100
_VARIABLES = (names.RESUME_EXPORT_VARIABLE, names.RESUME_VARIABLE)
SECONDS = 15.0
_AT_ONCE, _AT_ONCE_IN_ALL = 4, 32
Result = TypeVar("Result")


class Places:
    """What the settings of a page allow."""

    def __init__(self, page: Page):
        self._page = page
        self._given = [uri for uri in map(_parsed_or_none, page.exports) if uri is not None]
        given = [uri.path for uri in self._given if uri.scheme == "file"]
        self._roots = [*given, *(root for root in page.file_roots if page.may_read_files)]

    def allowed(self, text: str) -> StorageUri:
        """Return the URI of a folder that may be read. Raises BadUri, Forbidden, which says why not."""
        if len(text) > MAX_URI:
            raise Forbidden(f"the URI is longer than {MAX_URI} characters")
        uri = StorageUri.parse(text)
        if uri.scheme not in SCHEMES:
            raise Forbidden(f"{shown_text(uri, 300)}: exports are in stores with the schemes {', '.join(SCHEMES)}")
        if uri.scheme == "file" and self._root_of(uri) is None:
            raise Forbidden(
                f"{shown_text(uri, 300)} is not below a folder that this page may read; start it with the option --exports {uri}"
            )
        if not self._page.may_read_files and not any(_is_below(uri, given) for given in self._given):
            raise Forbidden(f"{shown_text(uri, 300)} is not below the exports that this page was started with")
        return uri

    def check_may_change(self) -> None:
        """Raise Forbidden for a server that does not run with the rights of its user: it reads stores, and changes nothing there."""
        if not self._page.may_read_files:
            raise Forbidden(
                "this page runs in a cluster: promote with `trainwright checkpoints promote`, with your own credentials"
            )

    def open(self, text: str, *, levels: int = 0) -> Store:
        """Return the store of a folder that may be read, as may be the `levels` of folders above it.

        Below a local root, no link out of it is followed. Raises BadUri, Forbidden, StorageError.
        """
        uri = self.allowed(text)
        above = uri
        for _ in range(levels):
            above = _parent(above)
            self.allowed(str(above))
        root = self._root_of(uri) if uri.scheme == "file" else None
        if root is None:
            return open_store(uri)
        if root == Path("/"):  # every file may be read; links still lead nowhere
            root = above.path
        store = FileStore(StorageUri.from_path(root))
        for part in uri.path.relative_to(root).parts:
            store = store.below(part)
        return store

    def _root_of(self, uri: StorageUri) -> Path | None:
        """Return the highest root above a path, so that as few links as possible are followed."""
        roots = [root for root in self._roots if uri.path == root or uri.path.is_relative_to(root)]
        return min(roots, key=lambda root: len(root.parts), default=None)


def _parsed_or_none(text: str) -> StorageUri | None:
    try:
        uri = StorageUri.parse(text)
    except StorageError:
        return None
    return uri if uri.scheme in SCHEMES else None


def _is_below(uri: StorageUri, given: StorageUri) -> bool:
    if uri.scheme != given.scheme:
        return False
    return uri.location == given.location or uri.location.startswith(f"{given.location.rstrip('/')}/")


def _parent(uri: StorageUri) -> StorageUri:
    above, slash, _ = uri.location.rstrip("/").rpartition("/")
    if not slash or not above:
        raise Forbidden(f"{shown_text(uri, 300)} is not in a folder of exports: expected EXPORT_URI/RUN/checkpoint-N")
    return StorageUri(uri.scheme, above)


class Source(TypedDict):
    """A folder of exports: `origin` is given, job or run, and `of` names the job or run."""

    uri: str
    origin: str
    of: str


def list_sources(page: Page, cluster: JobsClient, namespace: str) -> Json:
    """Return the folders of exports, the given ones first; `problems` says which part could not be looked at."""
    places, problems, found = Places(page), list[str](), dict[str, Source]()
    for uri in page.exports:
        found.setdefault(uri.rstrip("/"), Source(uri=uri.rstrip("/"), origin="given", of=""))
    for workspace in find_workspaces(page):
        for uri, run in _of_runs(workspace):
            _add(found, places, uri, "run", run)
    try:
        for uri, job in _of_jobs(cluster, namespace):
            _add(found, places, uri, "job", job)
    except ApiError as error:
        problems.append(f"TrainJobs cannot be listed, so their exports are not offered: {error.message}")
    return {"sources": [*found.values()][:_MAX_SOURCES], "problems": problems, "mayChange": page.may_read_files}


def _of_runs(workspace: WorkspaceFolder) -> Iterator[tuple[str, str]]:
    folder = workspace.path / RUNS
    try:
        with os.scandir(folder) as entries:
            found = [
                entry.name for _, entry in zip(range(_MAX_RUNS), entries, strict=False) if entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # removed meanwhile
        return
    for name in sorted(found):
        record = read_run(folder / name)
        for exported in record.all_of("exported") if record is not None else ():
            yield exported, name


def _add(found: dict[str, Source], places: Places, export: str, origin: str, of: str) -> None:
    root = root_of(export)
    if not root or root in found:
        return
    try:
        places.allowed(root)
    except (ApiError, StorageError):  # a scheme without stores, or a local path of another machine
        return
    found[root] = Source(uri=root, origin=origin, of=shown_text(of, 300))


def _of_jobs(cluster: JobsClient, namespace: str) -> Iterator[tuple[str, str]]:
    for job in list_jobs(cluster, namespace):
        for uri in exports_named_by(job):
            yield uri, f"{namespace_of(job)}/{name_of(job)}"


def exports_named_by(trainjob: Obj) -> list[str]:
    """Return the URIs of exports that a job's pods get to resume from. Pure."""
    given = [(name, value) for name, value in variables_of(trainjob) if name in _VARIABLES]
    found = [export_uri_of(value) if name == names.RESUME_VARIABLE else value for name, value in given]
    return [uri for uri in dict.fromkeys(found) if uri]


def root_of(export: str) -> str:
    """Return the folder of all exports of an export EXPORT_URI/RUN/checkpoint-N; "" if it is in none. Pure."""
    try:
        uri = StorageUri.parse(export)
    except StorageError:
        return ""
    root = uri.location.rstrip("/").rsplit("/", 2)
    return str(StorageUri(uri.scheme, root[0])) if len(root) == 3 and root[0] else ""


def list_jobs(cluster: JobsClient, namespace: str) -> Iterator[Obj]:
    """Yield the first 2,000 TrainJobs or a few more, of all namespaces if `namespace` is empty. Raises ApiError."""
    seen = 0
    for listing in cluster.pages(TRAINJOB, namespace or None):
        yield from listing.items
        seen += len(listing.items)
        if seen >= _MAX_JOBS:
            return


class SlowStore(StorageError):
    """A store did not answer in time."""


class StoreCalls:
    """The calls of one server. Thread-safe."""

    def __init__(self, *, seconds: float = SECONDS, at_once: int = _AT_ONCE):
        self._seconds, self._at_once = seconds, at_once
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._running: dict[str, list[float]] = {}
        """By place: when each call began, by the monotonic clock."""

    def call(self, place: str, action: Callable[[], Result]) -> Result:
        """Return what `action` returns; `place` names its store. Raises SlowStore, and what `action` raises."""
        began = time.monotonic()
        self._enter(place, began)
        future: Future[Result] = Future()
        thread = threading.Thread(target=self._run, args=(place, began, action, future), name="page-store", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._leave(place, began)
            raise SlowStore(f"{place}: this server has no thread left; try again") from error
        try:
            return future.result(timeout=max(0.0, began + self._seconds - time.monotonic()))
        except FutureTimeout:
            if future.done():  # the action itself has raised a TimeoutError
                raise
            raise SlowStore(f"{place} has not answered within {self._seconds:g} s; try again, or check the store") from None

    def _run(self, place: str, began: float, action: Callable[[], Result], future: Future[Result]) -> None:
        try:
            result = action()
        except BaseException as error:
            self._leave(place, began)
            future.set_exception(error)
        else:
            self._leave(place, began)
            future.set_result(result)

    def _enter(self, place: str, began: float) -> None:
        """Wait for one of the calls that a store may have at once; not for a store of which all hang."""
        deadline = began + self._seconds
        with self._free:
            while not self._is_free(place):
                running, now = self._running.get(place, []), time.monotonic()
                ends = [each + self._seconds for each in running]
                if now >= deadline or (len(running) >= self._at_once and now >= max(ends)):
                    raise SlowStore(f"{place}: {len(running)} earlier requests have not been answered; try again later")
                self._free.wait(timeout=min(each for each in (deadline, *ends) if each > now) - now)
            self._running.setdefault(place, []).append(began)

    def _is_free(self, place: str) -> bool:
        running = sum(map(len, self._running.values()))
        return len(self._running.get(place, [])) < self._at_once and running < _AT_ONCE_IN_ALL

    def _leave(self, place: str, began: float) -> None:
        with self._free:
            self._running[place].remove(began)
            if not self._running[place]:
                del self._running[place]
            self._free.notify_all()


def place_of(uri: StorageUri) -> str:
    """Return the store of a URI: its bucket, or the local files."""
    return "file://" if uri.scheme == "file" else f"{uri.scheme}://{uri.bucket}"
