"""Ends a data cache with its TrainJob, and a TrainJob with its cache.

The dataset initializer makes the cache's JobSet. It is suspended, resumed and deleted with the TrainJob; a training whose cache has
failed cannot read all rows, and fails at once, with the cache's reason, instead of being restarted by its Job.
"""

from __future__ import annotations

import contextlib

from trainwright.api import names
from trainwright.api.conditions import is_finished, set_condition
from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET, POD, SECRET, SERVICE, TRAINJOB
from trainwright.api.objects import Obj, copy_of, is_controlled_by, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key, owner_key
from trainwright.controlplane.controllers.queue import Key
from trainwright.datacache.settings import cache_name, service_name
from trainwright.initializers.cache_failure import cache_failure

REASON = "DataCacheFailed"
_MAX_MESSAGE = 2000


def data_cache(cluster: Cluster) -> Controller:
    """Return the controller. Keys are TrainJobs; the garbage collector removes what a deleted one leaves."""

    def reconcile(key: Key) -> None:
        namespace, name = key
        try:
            trainjob = cluster.get(TRAINJOB, name, namespace)
        except NotFound:  # deleted: owner references collect its cache
            return
        for kind, its_name in ((JOBSET, cache_name(name)), (SERVICE, service_name(name)), (SECRET, names.cache_secret(name))):
            try:
                cache = cluster.get(kind, its_name, namespace)
            except NotFound:  # this training has no cache, or it is gone
                continue
            if not is_controlled_by(cache, trainjob):
                continue
            if is_finished(trainjob):
                with contextlib.suppress(NotFound):
                    cluster.delete(kind, its_name, namespace, propagation="Background", uid=uid_of(cache))
            elif kind is JOBSET and is_finished(cache):
                _fail_training(cluster, trainjob, cache)
            elif kind is JOBSET:
                _follow(cluster, cache, is_suspended=bool(trainjob["spec"].get("suspend")))

    of_trainjob = owner_key("TrainJob")  # of the JobSet of the training, too: another writer may have replaced its conditions
    return Controller("data-cache", reconcile, {TRAINJOB: object_key, JOBSET: of_trainjob, SERVICE: of_trainjob})


def _follow(cluster: Cluster, jobset: Obj, *, is_suspended: bool) -> None:
    if bool(jobset["spec"].get("suspend")) != is_suspended:
        cluster.patch(JOBSET, name_of(jobset), {"spec": {"suspend": is_suspended}}, namespace_of(jobset))


def _fail_training(cluster: Cluster, trainjob: Obj, cache: Obj) -> None:
    """Let the JobSet of the training fail; its controller then ends its pods, and that of the TrainJob copies the reason."""
    namespace = namespace_of(trainjob)
    jobset = cluster.get(JOBSET, name_of(trainjob), namespace)
    if not is_controlled_by(jobset, trainjob) or is_finished(jobset):
        return
    pods = cluster.list(POD, namespace, label_selector=f"{names.JOBSET_NAME_LABEL}={name_of(cache)}").items
    message = f"the data cache {name_of(cache)} failed: {cache_failure(cache, pods)}"
    status = copy_of(jobset.get("status") or {})
    set_condition(status, "Failed", True, REASON, message[:_MAX_MESSAGE], now())
    change = {"conditions": status["conditions"], "terminalState": "Failed"}
    version = {"resourceVersion": jobset["metadata"]["resourceVersion"]}
    cluster.patch(JOBSET, name_of(jobset), {"metadata": version, "status": change}, namespace, subresource="status")
