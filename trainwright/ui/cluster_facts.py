"""Facts about the cluster and the server that the page shows in its frame."""

from __future__ import annotations

from typing import TypedDict

from trainwright.api.errors import ApiError
from trainwright.api.kinds import NAMESPACE
from trainwright.api.objects import name_of
from trainwright.ui.call import Call

_MAX_NAMESPACES = 2000


class ClusterFacts(TypedDict):
    """`namespaces` is None if they cannot be listed: the page then asks for a name. `orchestrators` are addresses by name."""

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
        namespaces = None
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
