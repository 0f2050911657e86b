"""Finds the Secrets of steps whose submitter was killed before their job had them: nothing owns them, so nothing deletes them.

This reads Secrets, which no client of a run may: it is for a person with the rights of one who keeps the namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from trainwright.api import names
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import SECRET, TRAINJOB
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.submit.submission import SUFFIX

SUBMISSION = timedelta(minutes=15)
"""How long a submission may take from its Secret to its job; one that is younger is not left over."""


@dataclass(frozen=True)
class LeftCredentials:
    """A Secret without owner whose job does not exist or has ended. It has no values."""

    name: str
    namespace: str
    uid: str
    created: str
    outcome: str = ""
    failed: bool = False


def left_credentials(
    cluster: Cluster, namespace: str | None, *, run: str = "", older_than: timedelta | None = None
) -> list[LeftCredentials]:
    """Return the Secrets that are left over, of `run` if it is given, oldest first; of all namespaces with None.

    Raises ApiError; Forbidden without the right to list Secrets.
    """
    retrying, labels = RetryingCluster(cluster), f"{names.MANAGED_BY_LABEL}=trainwright,{names.STEP_LABEL}"
    secrets = retrying.list(SECRET, namespace, label_selector=labels).items
    jobs = retrying.list(TRAINJOB, namespace, label_selector=f"{names.MANAGED_BY_LABEL}=trainwright").items
    unfinished = {(namespace_of(job), name_of(job)) for job in jobs if not phase_of(job).is_final}
    latest = datetime.now(UTC) - max(older_than or SUBMISSION, SUBMISSION)
    found = [
        LeftCredentials(name_of(secret), namespace_of(secret), uid_of(secret), str(secret["metadata"]["creationTimestamp"]))
        for secret in secrets
        if _is_left(secret, unfinished, latest) and (not run or labels_of(secret).get(names.RUN_LABEL) == label_value(run))
    ]
    return sorted(found, key=lambda each: each.created)


def delete_left(cluster: Cluster, left: list[LeftCredentials]) -> Iterator[LeftCredentials]:
    """Delete the Secrets, each unless another has taken its name; yield what became of each."""
    retrying = RetryingCluster(cluster)
    for each in left:
        try:
            retrying.delete(SECRET, each.name, each.namespace, uid=each.uid)
            yield replace(each, outcome="deleted")
        except (NotFound, Conflict):
            yield replace(each, outcome="gone already")
        except ApiError as error:
            yield replace(each, outcome=f"it could not be deleted: {error.message}", failed=True)


def _is_left(secret: Obj, unfinished: set[tuple[str, str]], latest: datetime) -> bool:
    metadata, name = secret["metadata"], name_of(secret)
    if metadata.get("ownerReferences") or not name.endswith(SUFFIX) or parse_time(metadata["creationTimestamp"]) > latest:
        return False
    return (namespace_of(secret), name.removesuffix(SUFFIX)) not in unfinished
