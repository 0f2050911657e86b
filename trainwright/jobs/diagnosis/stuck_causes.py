"""Which causes waiting cannot fix, and for how long each may last before a wait ends: what is missing may be created after the job,
and a pull or an admission is tried again.

A claim that is being provisioned, a full quota and a place in a queue are not among them. Whether the node of a pod has stopped
answering is read from the pod alone: clients may not read nodes.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import NamedTuple

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity

MISSING_SECONDS = 60.0
"""Seconds for which a Secret, a ConfigMap, a claim or a queue may be missing: whoever creates it may do so after the job."""
RETRIED_SECONDS = 600.0
"""Seconds for which pulls of an image and creations of a pod may fail: a registry may be down, and a policy may be changed."""
_MISSING_VOLUME = re.compile(r'\b(secret|configmap) "[^"]+" not found|references non-existent (secret|config) key', re.IGNORECASE)
"""In the message of a volume that cannot be mounted."""
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "[^"]+" not found', re.IGNORECASE)
"""In the message of the scheduler."""
_POD_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[a-z]+)')
_POLICY = re.compile(r"ValidatingAdmissionPolicy|admission webhook \"[^\"]*\" denied|\b(?:maximum|minimum) \S+ usage per ")
_MAX_MESSAGE = 4096
"""Characters of a message that are looked at: anyone may write an Event of any size."""
_MISSING_QUEUE = re.compile(r"(?:does not|doesn't) exist")
_LOST_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_LATE_DELETION_SECONDS = 10
"""Seconds after its grace period for which a pod may exist before its node counts as lost."""


class Refusal(NamedTuple):
    """Why pods cannot be created: seconds after which this is final, and what to do."""

    seconds: float
    advice: str


def is_missing_volume(message: str) -> bool:
    """Whether a volume cannot be mounted because its Secret or ConfigMap is missing."""
    return _MISSING_VOLUME.search(message) is not None


def is_missing_claim(message: str) -> bool:
    """Whether a pod cannot be scheduled because its claim does not exist; one that is not bound yet may be."""
    return _MISSING_CLAIM.search(message) is not None


def is_missing_queue(reason: str, message: str) -> bool:
    """Whether a queue, by the condition of a Workload, does not exist."""
    is_refused = reason in ("Misconfigured", "Inadmissible") and _MISSING_QUEUE.search(message) is not None
    return is_refused or reason == "QueueNotFound"


def refusal_of(message: str) -> Refusal | None:
    """Return why the API server does not admit a pod, from the event of its Job; None if it may admit it later."""
    message = message[:_MAX_MESSAGE]
    if (level := _POD_SECURITY.search(message)) is not None:
        return Refusal(
            0.0,
            f"the namespace enforces the Pod Security level {level['level']}: set the securityContext that the message asks for in "
            "runtime_patches or in the runtime, as the bundled runtimes have it",
        )
    if _POLICY.search(message) is not None:
        return Refusal(RETRIED_SECONDS, "change the request as the message says, or have the policy changed")
    if _exceeds_quota(message):
        return Refusal(RETRIED_SECONDS, "the quota is smaller than one pod: request less, or have it raised")
    return None


def _exceeds_quota(message: str) -> bool:
    """Whether one pod asks for more than a quota: `exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`."""
    _, _, quota = message.partition("exceeded quota: ")
    requested, _, rest = quota.partition(", requested: ")[2].partition(", used: ")
    limits = _amounts(rest.partition(", limited: ")[2])
    return any(name in limits and amount > limits[name] for name, amount in _amounts(requested).items())


def _amounts(text: str) -> dict[str, Quantity]:
    found = {}
    for entry in text.split(","):
        name, _, amount = entry.partition("=")
        try:
            found[name.strip()] = parse_quantity(amount)
        except ValueError:  # not an amount
            continue
    return found


def lost_since(pod: Obj) -> str | None:
    """Return since when a pod that is being deleted has not answered: it still exists long after its grace period. None if it ends."""
    deadline, phase = pod["metadata"].get("deletionTimestamp"), (pod.get("status") or {}).get("phase")
    if not deadline or phase in ("Succeeded", "Failed"):  # it is not being deleted, or has ended
        return None
    if time.time() < datetime.fromisoformat(deadline).timestamp() + _LATE_DELETION_SECONDS:  # a slow node is not a lost one
        return None
    ready = condition(pod, "Ready") or {}
    return str(ready.get("lastTransitionTime") or deadline) if ready.get("status") != "True" else deadline


def unreachable_since(pod: Obj) -> str | None:
    """Return since when the node of a running pod has not answered: it was set not ready, although its containers are."""
    ready, status = condition(pod, "Ready") or {}, pod.get("status") or {}
    states = status.get("containerStatuses") or []
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return None
    is_silent = ready.get("status") == "False" and not ready.get("reason")
    return (
        str(ready.get("lastTransitionTime") or "?")
        if is_silent and states and all(entry.get("ready") for entry in states)
        else None
    )


def toleration_seconds(pod: Obj) -> int | None:
    """Return for how many seconds a pod stays on a node that does not answer; None for ever."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    of_lost = [
        entry
        for entry in tolerations
        if entry.get("key") in (None, "", *_LOST_TAINTS) and entry.get("effect") in (None, "", "NoExecute")
    ]
    seconds = [entry.get("tolerationSeconds") for entry in of_lost]
    return max((int(each) for each in seconds if each is not None), default=0) if None not in seconds else None
