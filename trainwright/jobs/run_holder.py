"""Who holds the folder of a run: the first TrainJob that writes to it. A second one, of somebody else, is refused before it does.

Two steps that share a run id and a workspace would overwrite each other's checkpoints, and neither would hear of it.
"""

from __future__ import annotations

from collections.abc import Collection

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import RunFolderTaken


def check_holder(cluster: Cluster, wanted: Obj, owners: Collection[str]) -> None:
    """Refuse a job whose folder another one holds; `owners` are those of the step itself, now and before a clear.

    Raises RunFolderTaken naming the holder, and ApiError where jobs cannot be listed.
    """
    for other in _others(cluster, wanted, owners):
        raise RunFolderTaken(_refusal(wanted, other))


def settle_holder(cluster: Cluster, created: Obj, owners: Collection[str]) -> None:
    """After a job was created: where another one was created for the folder in the same moment, the later one goes again.

    Both go where neither is known to be the later one. Raises RunFolderTaken once the job was deleted, or cannot be.
    """
    for other in _others(cluster, created, owners):
        if _time(other) <= _time(created):
            refusal = f"{_refusal(created, other)}; both were submitted at the same time"
            try:
                cluster.delete(TRAINJOB, name_of(created), namespace_of(created), propagation="Foreground", uid=uid_of(created))
            except Forbidden as error:
                raise RunFolderTaken(
                    f"{refusal}, and the TrainJob {name_of(created)!r} cannot be withdrawn: {error.message}; delete it now"
                ) from error
            withdrawn = RunFolderTaken(f"{refusal}, and this one was withdrawn")
            withdrawn.retryable = True
            raise withdrawn


def _others(cluster: Cluster, trainjob: Obj, owners: Collection[str]) -> list[Obj]:
    folder = annotations_of(trainjob).get(names.RUN_FOLDER_ANNOTATION)
    if not folder:
        return []
    selector = f"{names.RUN_LABEL}={labels_of(trainjob)[names.RUN_LABEL]}"
    return [
        job
        for job in cluster.list(TRAINJOB, namespace_of(trainjob), label_selector=selector).items
        if annotations_of(job).get(names.RUN_FOLDER_ANNOTATION) == folder
        and annotations_of(job).get(names.OWNER_ANNOTATION) not in owners
        and not is_deleting(job)
    ]


def _refusal(trainjob: Obj, holder: Obj) -> str:
    folder, owner = annotations_of(trainjob)[names.RUN_FOLDER_ANNOTATION], annotations_of(holder).get(names.OWNER_ANNOTATION)
    return (
        f"run_id: the folder {folder} is held by the TrainJob {name_of(holder)!r} of {owner or 'somebody else'}; "
        "choose another run_id or workspace, or delete that job if its checkpoints are to be taken over"
    )


def _time(trainjob: Obj) -> str:
    return str(trainjob["metadata"].get("creationTimestamp") or "")
