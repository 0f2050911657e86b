"""The endpoints of runs and models. Stores are called with a time limit each, so that a slow one hides no other part of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import phase_of
from trainwright.checkpoints.promotion import CHALLENGER, CHAMPION
from trainwright.storage.errors import StorageError
from trainwright.storage.store import Store
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call, Endpoint, Json
from trainwright.ui.jobs.row import creator_of
from trainwright.ui.models.evaluations import EvaluatedExports
from trainwright.ui.models.export_page import diff_exports, read_card, read_export_page, read_files
from trainwright.ui.models.export_rows import MAX_NAMES, ShownAlias, read_aliases, read_folder
from trainwright.ui.models.foreign_json import show_file, shown_text
from trainwright.ui.models.history import Histories
from trainwright.ui.models.places import Places, StoreCalls, exports_named_by, list_jobs, list_sources, place_of
from trainwright.ui.models.run_page import links_in, links_of, read_origin_of, read_run_page
from trainwright.ui.models.run_rows import list_runs
from trainwright.ui.models.workspaces import JobFolder, RunJobs, WorkspaceFolder, find_folder, find_workspaces, workspace_named
from trainwright.workspace.layout import containing_run, step_path

Result = TypeVar("Result")


class ModelEndpoints:
    """The endpoints, with the limits of the stores that one server calls."""

    def __init__(self, calls: StoreCalls | None = None) -> None:
        self._calls, self._histories = calls or StoreCalls(), Histories()
        self.routes: tuple[Endpoint, ...] = (
            Endpoint("GET", "/workspaces", show_workspaces),
            Endpoint("GET", "/runs", self.show_runs),
            Endpoint("GET", "/run", self.show_run),
            Endpoint("GET", "/run/file", self.show_run_file),
            Endpoint("GET", "/job-run", self.show_job_run),
            Endpoint("GET", "/export-folders", self.show_sources),
            Endpoint("GET", "/exports", self.show_exports),
            Endpoint("GET", "/export", self.show_export),
            Endpoint("GET", "/export/files", self.show_export_files),
            Endpoint("GET", "/export/card", self.show_export_card),
            Endpoint("GET", "/export/diff", self.show_export_diff),
        )

    def show_runs(self, call: Call) -> Json:
        """Return a page of the runs of a `workspace`, `after` a run. Raises NotFound, StorageError."""
        workspace = workspace_named(call.page, call.query.get("workspace", ""))
        return self._of_disk(workspace, lambda: list_runs(workspace, call.query.get("after", ""), _run_jobs(call, workspace)))

    def show_run(self, call: Call) -> Json:
        """Return a `run` of a `workspace`. Raises NotFound, WorkspaceError, StorageError."""
        workspace = workspace_named(call.page, call.query.get("workspace", ""))
        return self._of_disk(workspace, lambda: read_run_page(workspace, call.query.get("run", ""), _run_jobs(call, workspace)))

    def show_run_file(self, call: Call) -> Json:
        """Return a text file, `path` in the folder of a `run`. Raises NotFound, Forbidden, WorkspaceError, StorageError."""
        workspace = workspace_named(call.page, call.query.get("workspace", ""))
        run, path = call.query.get("run", ""), call.query.get("path", "")
        return self._of_disk(workspace, lambda: show_file(workspace.path, run, path))

    def show_history(self, call: Call) -> Json:
        """Return the history of a TrainJob (`namespace`, `name`), or of the training in a `folder` of a `workspace`, as series.

        Without a folder that this machine reads, the series are empty, and the notes say so. Raises NotFound, ApiError, StorageError.
        """
        place = _given_folder(call)
        if place is None:
            return {"series": {}, "axis": "step", "source": "", "notes": [_NO_FOLDER], "folder": ""}
        found = self._of_disk(place.workspace, lambda: self._histories.read(place.workspace.path, place.folder))
        return {**found, "folder": place.folder, "workspace": place.workspace.id, "run": place.run}

    def show_job_run(self, call: Call) -> Json:
        """Return the run's folder of a TrainJob (`namespace`, `name`) if a workspace has it, the exports that it names, its trackers.

        Raises NotFound, ApiError, StorageError.
        """
        trainjob = _trainjob(call)
        links, exports = links_of(trainjob), exports_named_by(trainjob)
        place = find_folder(trainjob, find_workspaces(call.page))
        if place is None:
            return {"workspace": "", "run": "", "folder": "", "links": links, "exports": exports}
        local = self._of_disk(place.workspace, lambda: links_in(step_path(place.workspace.path, place.folder)))
        found = {"workspace": place.workspace.id, "run": place.run, "folder": place.folder}
        return {**found, "links": [*links, *local], "exports": exports}

    def show_sources(self, call: Call) -> Json:
        """Return the folders of exports that the page can open. Nothing is asked of their stores."""
        namespace = call.query.get("namespace", "")
        return self._calls.call("the list of exports", lambda: list_sources(call.page, call.session.cluster, namespace))

    def show_exports(self, call: Call) -> Json:
        """Return a page of the folder of exports `uri`, `after` a name. Raises Forbidden, BadUri, StorageError."""
        places, uri = Places(call.page), call.query.get("uri", "")
        after, evaluated = call.query.get("after", ""), EvaluatedExports(lambda: find_workspaces(call.page))

        def read() -> Json:
            return read_folder(places.open(uri), after, lambda: _aliases(_above(places, uri, 1)), evaluated)

        return self._of_store(places, uri, read)

    def show_export(self, call: Call) -> Json:
        """Return an export, with what workspaces and cluster know of its origin. Raises NoCheckpoint, Forbidden, StorageError."""
        places, uri = Places(call.page), call.query.get("uri", "")

        def read() -> Json:
            run, root = _above(places, uri, 1), _above(places, uri, 2)
            return {
                **read_export_page(_export_store(places, uri), run, _aliases(root)),
                "root": shown_text(root.uri) if root is not None else "",
                "folder": shown_text(run.uri) if run is not None else "",
                "mayPromote": call.page.may_read_files and root is not None,
            }

        page = self._of_store(places, uri, read)
        job = _job_facts(call.session.cluster, call.namespace, page["trainjob"])
        return {**page, "prepared": _prepared(call, page["origin"]), "job": job}

    def show_export_files(self, call: Call) -> Json:
        """Return a page of the files of an export, from `offset`. Raises NoCheckpoint, Forbidden, StorageError."""
        places, uri, offset = Places(call.page), call.query.get("uri", ""), _number(call, "offset")
        return self._of_store(places, uri, lambda: read_files(_export_store(places, uri), offset))

    def show_export_card(self, call: Call) -> Json:
        """Return the model card of an export as Markdown. Raises NoCheckpoint, Forbidden, StorageError."""
        places, uri = Places(call.page), call.query.get("uri", "")
        return self._of_store(places, uri, lambda: read_card(_export_store(places, uri)))

    def show_export_diff(self, call: Call) -> Json:
        """Return what differs from the export `one` to the `other`. Raises NoCheckpoint, Forbidden, StorageError."""
        places = Places(call.page)
        one, other = call.query.get("one", ""), call.query.get("other", "")
        places.allowed(other)
        return self._of_store(places, one, lambda: diff_exports(_export_store(places, one), _export_store(places, other)))

    def _of_store(self, places: Places, uri: str, action: Callable[[], Result]) -> Result:
        """Call an action that opens the store of a URI: that may take long, too."""
        return self._calls.call(place_of(places.allowed(uri)), action)

    def _of_disk(self, workspace: WorkspaceFolder, action: Callable[[], Result]) -> Result:
        """A workspace may be on a network file system that hangs."""
        return self._calls.call(str(workspace.path), action)


_NO_FOLDER = "the folder of this training is on no workspace that this page reads"


def show_workspaces(call: Call) -> Json:
    """Return the workspaces of this machine."""
    return {"workspaces": [{"id": each.id, "path": shown_text(each.path)} for each in find_workspaces(call.page)]}


def _run_jobs(call: Call, workspace: WorkspaceFolder) -> RunJobs | None:
    """Return the TrainJobs of runs in the `namespace`, else in all; None if those of the workspace's claim cannot be listed."""
    namespace = call.query.get("namespace", "")
    if namespace and workspace.claim_path.partition("/")[0] not in ("", namespace):
        return None
    try:
        return RunJobs(list_jobs(call.session.cluster, namespace), find_workspaces(call.page))
    except ApiError:  # not for this user, or no answer: the records alone are shown
        return None


def _given_folder(call: Call) -> JobFolder | None:
    if "workspace" not in call.query:
        return find_folder(_trainjob(call), find_workspaces(call.page))
    workspace, folder = workspace_named(call.page, call.query["workspace"]), call.query.get("folder", "")
    containing_run(folder)
    if not step_path(workspace.path, folder).is_dir():
        raise NotFound(f"the workspace has no folder {shown_text(folder, 200)}")
    return JobFolder(workspace, folder)


def _trainjob(call: Call) -> Obj:
    return call.session.cluster.get(TRAINJOB, call.query.get("name", ""), call.namespace)


def _export_store(places: Places, uri: str) -> Store:
    """Return the store of an export, whose run's folder may be read too: files may be in that of another export of the run."""
    return places.open(uri, levels=1)


def _above(places: Places, uri: str, levels: int) -> Store | None:
    """Return the store of a folder above, None if it may not be read."""
    try:
        above = str(places.allowed(uri))
        for _ in range(levels):
            above = above.rstrip("/").rpartition("/")[0]
        return places.open(above)
    except (Forbidden, StorageError):  # what lies above is shown only where it may be read
        return None


def _aliases(root: Store | None) -> list[ShownAlias]:
    """Return the aliases in the folder of all exports; each that cannot be read has a problem."""
    if root is None:
        return []
    try:
        files = root.list_folder(MAX_NAMES).files
    except StorageError:  # what may not be listed may be read
        files = {f"{CHAMPION}.json": 0, f"{CHALLENGER}.json": 0}
    return read_aliases(root, files)


def _prepared(call: Call, origin: dict[str, str]) -> Json:
    """Return where the prepared dataset and model come from, by the receipts of the first workspace that has them."""
    found: Json = {}
    for kind in ("dataset", "model"):
        for workspace in find_workspaces(call.page) if origin.get(kind) else ():
            receipt = read_origin_of(workspace.path, kind, origin[kind])
            if receipt["source"]:
                found[kind] = {**receipt, "workspace": workspace.id}
                break
    return found


def _job_facts(cluster: JobsClient, namespace: str, name: str) -> Json | None:
    """Return the TrainJob that wrote an export, if it is still there and may be read."""
    if not name:
        return None
    try:
        job = cluster.get(TRAINJOB, name, namespace)
    except ApiError:  # the export is shown without its TrainJob
        return None
    return {"namespace": namespace, "name": name, "uid": uid_of(job), "phase": phase_of(job).value, "creator": creator_of(job)}


def _number(call: Call, field: str) -> int:
    text = call.query.get(field, "") or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise ValueError(f"{field}: expected a whole number")
    return int(text)
