"""Ends a data cache with its TrainJob: suspends, resumes and deletes the JobSet that the dataset initializer has made for it."""

from __future__ import annotations

import contextlib

from trainwright.api.conditions import is_finished
from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET, SERVICE, TRAINJOB
from trainwright.api.objects import Obj, is_controlled_by, labels_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key
from trainwright.datacache.objects import CACHE_LABEL


def data_cache(cluster: Cluster) -> Controller:
    """Return the controller. Keys are TrainJobs; the garbage collector removes what a deleted one leaves."""

    def reconcile(key: Key) -> None:
        namespace, name = key
        try:
            trainjob = cluster.get(TRAINJOB, name, namespace)
        except NotFound:
            return
        for kind in (JOBSET, SERVICE):
            for cache in cluster.list(kind, namespace, label_selector=f"{CACHE_LABEL}={name}").items:
                if not is_controlled_by(cache, trainjob):
                    continue
                if is_finished(trainjob):
                    with contextlib.suppress(NotFound):
                        cluster.delete(kind, name_of(cache), namespace, propagation="Background", uid=uid_of(cache))
                elif kind is JOBSET and not is_finished(cache):
                    _follow(cluster, cache, is_suspended=bool(trainjob["spec"].get("suspend")))

    return Controller("data-cache", reconcile, {TRAINJOB: object_key, JOBSET: _key_of_cache, SERVICE: _key_of_cache})


def _follow(cluster: Cluster, jobset: Obj, *, is_suspended: bool) -> None:
    if bool(jobset["spec"].get("suspend")) != is_suspended:
        cluster.patch(JOBSET, name_of(jobset), {"spec": {"suspend": is_suspended}}, namespace_of(jobset))


def _key_of_cache(obj: Obj) -> list[Key]:
    """A cache is made while its TrainJob runs, which may have ended meanwhile."""
    name = labels_of(obj).get(CACHE_LABEL)
    return [(namespace_of(obj), name)] if name else []
