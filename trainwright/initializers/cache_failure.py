"""Why a data cache has failed, from its JobSet and pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished
from trainwright.api.containers import container_statuses
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.datacache.objects import HEAD
from trainwright.jobs.diagnosis.pod_failure import pod_failure


def cache_failure(jobset: Obj, pods: Iterable[Obj]) -> str:
    """Return why the cache has failed, or an empty string. A worker's reason comes before that of the head, which repeats it."""
    failed = [(pod, found) for pod in pods if (found := pod_failure(pod)) is not None and found.exit_code is not None]
    failed.sort(key=lambda each: role_of(each[0]) == HEAD)
    if failed:
        pod, found = failed[0]
        return f"pod {name_of(pod)}: {_last_line(pod) if found.exit_code == 1 else found.describe()}"
    if is_finished(jobset):  # its pods have been deleted, or say nothing
        ended = condition(jobset, "Failed") or {}
        return str(ended.get("message") or "its JobSet has ended")
    return ""


def role_of(pod: Obj) -> str:
    """Return `head` or `worker`."""
    return labels_of(pod).get(names.REPLICATED_JOB_LABEL, "")


def _last_line(pod: Obj) -> str:
    """Return the last line of the log, with which a program of the cache says why it ends."""
    ended = ((state.get("state") or {}).get("terminated") or {} for state in container_statuses(pod))
    lines = [line for each in ended for line in str(each.get("message") or "").strip().splitlines()]
    return lines[-1] if lines else "exited 1 without a message"
