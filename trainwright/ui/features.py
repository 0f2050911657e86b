"""The endpoints of the page by feature, and what they share for as long as the server runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypedDict

from trainwright.api.errors import ApiError
from trainwright.api.kinds import NAMESPACE
from trainwright.api.objects import name_of
from trainwright.ui import actions
from trainwright.ui import job_objects as objects
from trainwright.ui.call import Call, Endpoint, Json, Stream
from trainwright.ui.form import endpoints as form
from trainwright.ui.jobs.job_feed import JobFeed, SharedWatches
from trainwright.ui.jobs.job_view import JobView
from trainwright.ui.log_history import LogHistories
from trainwright.ui.logs.endpoints import LogEndpoints
from trainwright.ui.models.endpoints import ModelEndpoints

_MAX_FEEDS, _MAX_VIEWS, _MAX_NAMESPACES = 100, 200, 2000


class Features:
    """All endpoints and streams of one server. Call `close` at the end."""

    def __init__(self) -> None:
        self._feeds: SharedWatches[tuple[str, str], JobFeed] = SharedWatches(
            _MAX_FEEDS, f"{_MAX_FEEDS} lists of TrainJobs are open"
        )
        self._views: SharedWatches[tuple[str, str, str], JobView] = SharedWatches(_MAX_VIEWS, f"{_MAX_VIEWS} TrainJobs are shown")
        self._logs, self._models, self._log_histories = LogEndpoints(), ModelEndpoints(), LogHistories()
        self.routes: tuple[Endpoint | Stream, ...] = (
            Endpoint("GET", "/cluster", show_cluster),
            *form.ROUTES,
            Stream("/trainjobs/stream", self._jobs),
            Stream("/trainjobs/{namespace}/{name}/stream", lambda call: self._views.updates(*_view_of(call))),
            Endpoint("GET", "/trainjobs/{namespace}/{name}/report", lambda call: self._views.of(*_view_of(call)).report()),
            Endpoint("GET", "/history", self._history),
            *self._models.routes,
            *actions.ROUTES,
            *objects.ROUTES,
            *self._logs.routes,
        )

    def close(self) -> None:
        """Stop all watches, and with them the streams that show them."""
        self._feeds.close()
        self._views.close()
        self._logs.close()

    def _jobs(self, call: Call) -> AsyncGenerator[Json, None]:
        """Yield the rows of a namespace, of all without one."""
        cluster, namespace = call.session.cluster, call.query.get("namespace", "")
        return self._feeds.updates((call.session.key, namespace), lambda: JobFeed(cluster, namespace or None))

    def _history(self, call: Call) -> Json:
        """Return the history of a training from its run's files; of a TrainJob without them, from its log."""
        found = self._models.show_history(call)
        name = call.query.get("name", "")
        return found if found["series"] or not name else self._log_histories.read(call, name)


def _view_of(call: Call) -> tuple[tuple[str, str, str], Callable[[], JobView]]:
    """Return the key of the view that a call names, and what opens it."""
    cluster, namespace, name = call.session.cluster, call.path["namespace"], call.path["name"]
    return (call.session.key, namespace, name), lambda: JobView(cluster, namespace, name)


class ClusterFacts(TypedDict):
    """What the frame of the page shows.

    `namespaces` is None if they cannot be listed: the page then asks for a name. `orchestrators` are addresses by name.
    """

    host: str
    mode: str
    user: str
    namespace: str
    namespaces: list[str] | None
    mayLaunch: bool
    mayReadFiles: bool
    orchestrators: dict[str, str]


def show_cluster(call: Call) -> ClusterFacts:
    """Return what is known of the cluster with the user's rights. Raises ApiError if it cannot be reached."""
    cluster = call.session.cluster
    try:
        namespaces = sorted(name_of(each) for each in cluster.list(NAMESPACE).items)[:_MAX_NAMESPACES]
    except ApiError as error:
        if error.code not in (401, 403, 404):
            raise
        namespaces = None  # a user may have rights in one namespace alone
    return ClusterFacts(
        host=cluster.host or "",
        mode=cluster.mode.value,
        user=call.session.user,
        namespace=cluster.default_namespace,
        namespaces=namespaces,
        mayLaunch=call.page.launches is not None,
        mayReadFiles=call.page.may_read_files,
        orchestrators=dict(call.page.orchestrators),
    )
