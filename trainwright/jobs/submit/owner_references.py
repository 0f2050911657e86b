"""Sets owner references of objects that are created before their TrainJob, so that they are deleted with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from trainwright.api.errors import AlreadyExists, Conflict, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.cluster.protocol import Cluster

_MAX_TRIES = 10


def trainjob_reference(trainjob: Obj) -> Obj:
    """Return the owner reference for a TrainJob."""
    return {key: trainjob[key] for key in ("apiVersion", "kind")} | {"name": name_of(trainjob), "uid": uid_of(trainjob)}


def set_owners(
    cluster: Cluster,
    kind: Kind,
    name: str,
    namespace: str,
    owners: Callable[[Obj], list[Obj] | None],
    *,
    recreate: Callable[[], object] | None = None,
) -> None:
    """Set the owner references of an object to `owners(object)`; None leaves the object unchanged.

    `recreate` is called if the object does not exist. The object is then read again after the change, since garbage collection of a
    previous owner may delete it. Raises Conflict if the object changes at every try, NotFound without `recreate`, and ApiError.
    """
    for _ in range(_MAX_TRIES):
        try:
            current = cluster.get(kind, name, namespace)
            references = owners(current)
            if references is None:
                return
            metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "ownerReferences": references}
            cluster.patch(kind, name, {"metadata": metadata}, namespace)
        except NotFound:
            if recreate is None:
                raise
            with suppress(AlreadyExists):
                recreate()
        except Conflict:
            continue
        else:
            if recreate is None:
                return
    raise Conflict(f"the {kind.kind} {name!r} changed {_MAX_TRIES} times while its owner was being set")
