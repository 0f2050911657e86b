"""Why a TrainJob waits, as far as the status of its pods shows it: a lost node, a container that crashes, an image. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.api.containers import container_statuses, run_ends
from trainwright.api.generated_names import without_suffixes
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, describe_exit, waiting_of
from trainwright.jobs.diagnosis.stuck_causes import (
    MISSING_SECONDS,
    RETRIED_SECONDS,
    is_missing_claim,
    lost_since,
    toleration_seconds,
    unreachable_since,
)
from trainwright.jobs.state.pods import place_of
from trainwright.text.foreign_texts import one_line

_FINAL_IMAGE_REASONS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_MISSING_ADVICE = "create what is missing, or correct its name, and submit the job again"
_IMAGE_ADVICE = (
    "correct the name of the image, give the pods a pull secret, or make the registry answer, and submit the job again"
)
NOTHING_SEEN = "no pod is waiting and there is no warning event"
_COMMAND_NOT_FOUND = re.compile(r"executable file not found|no such file or directory|permission denied")
_OF_NODES = {"node": 0, "unreachable": 1}
"""The parts of reasons that are about nodes, the most important first."""


@dataclass(frozen=True)
class WaitingReason:
    """Why a job waits.

    `part` is `queue`, `scheduling`, `image`, `container`, `config` (a Secret, ConfigMap or claim), `node` (lost, and its pods do not
    end), `unreachable` (a node that does not answer), `job`, `event`, `admission` (pods are refused) or `cluster`.
    """

    text: str
    part: str
    cannot_recover: bool = False
    """Whether waiting longer cannot help: the job, or what it refers to, has to be changed."""
    confirmed_after: float = 0.0
    """Seconds for which it must have lasted at least to count as one that cannot recover."""
    since: str = ""
    """RFC 3339 time since when a node is lost."""
    pod: str = ""
    """The pod that waits for its image, or whose container was stopped."""
    container: str = ""
    """The container that was stopped, and is to be restarted."""
    advice: str = ""
    """What to do about a cause that lasts."""

    @property
    def is_final(self) -> bool:
        """Whether it cannot recover, however short it has lasted."""
        return self.cannot_recover and not self.confirmed_after

    @property
    def key(self) -> str:
        """The reason without what changes while it stays the same: numbers, the random part of names, and back-off of a pull."""
        if self.part == "image" and (image := re.search(r'"([^"]+)"', self.text)):
            return image[1]
        return re.sub(r"\d+", "", without_suffixes(self.text))


def pods_reason(pods: list[Obj], concerned: list[Obj] | None = None) -> WaitingReason | None:
    """Return the reason that the status of a pod shows: a lost node first, then the first pod concerned that waits. Pure.

    All pods are concerned by default.
    """
    waiting = [pod for pod in pods if not (is_over(pod) or _is_replaced(pod, pods))]
    reasons = [(pod, reason) for pod in waiting if (reason := _node_reason(pod) or _pod_reason(pod)) is not None]
    found = [reason for pod, reason in reasons if reason.part in _OF_NODES or concerned is None or pod in concerned]
    if found and all(map(_lacks_command, waiting)):  # the image is the same at the next try
        return WaitingReason(found[0].text, "container", cannot_recover=True)
    return min(found, key=lambda reason: _OF_NODES.get(reason.part, len(_OF_NODES)), default=None)


def node_reason(pods: list[Obj]) -> WaitingReason | None:
    """Return that the node of a pod is lost or does not answer; None if all answer. Pods that were replaced do not count. Pure."""
    reasons = (_node_reason(pod) for pod in pods if not (is_over(pod) or _is_replaced(pod, pods)))
    return min(filter(None, reasons), key=lambda reason: _OF_NODES[reason.part], default=None)


def _node_reason(pod: Obj) -> WaitingReason | None:
    node = (pod.get("spec") or {}).get("nodeName") or "?"
    if (since := lost_since(pod)) is not None:
        text = (
            f"pod {name_of(pod)} cannot be stopped: its node {node} has been lost since {since}; "
            "the job fails, or replaces it, only when the node comes back or is deleted"
        )
        return WaitingReason(text, "node", since=since)
    if (since := unreachable_since(pod)) is not None:
        seconds = toleration_seconds(pod)
        end = "stays there until the node comes back or is deleted" if seconds is None else f"is deleted {seconds} s after that"
        silent = f"pod {name_of(pod)} is on node {node}, which is not ready and has not answered since {since}"
        text = f"{silent}; unless it does, the pod {end}"
        return WaitingReason(text, "unreachable", since=since)
    return None


def _is_replaced(pod: Obj, pods: list[Obj]) -> bool:
    """Whether a pod that is being deleted has a successor: with back-off left its Job does not wait for its end."""
    if not pod["metadata"].get("deletionTimestamp"):  # it is the current one
        return False
    born = str(pod["metadata"].get("creationTimestamp") or "")
    return any(
        place_of(other) == place_of(pod)
        and uid_of(other) != uid_of(pod)
        and str(other["metadata"].get("creationTimestamp") or "") >= born
        for other in pods
        if not other["metadata"].get("deletionTimestamp")
    )


def _pod_reason(pod: Obj) -> WaitingReason | None:
    for entry in container_statuses(pod):
        if (ended := _ended_before_restart(entry)) is not None:
            number, message = int(entry.get("restartCount") or 0) + 1, one_line(ended.get("message"))
            text = f"container {entry['name']} {describe_exit(ended)}{f': {message}' if message else ''}"
            runs = f"{number} runs" if number > 1 else "its first run"
            stopped = str(entry["name"]) if ended.get("exitCode") in STOPPED_CODES else ""
            if _is_never_restarted(pod, entry):  # its other containers still run
                reason = f"pod {name_of(pod)} fails when all its containers have ended: {text}"
            else:
                reason = f"pod {name_of(pod)} waits to be restarted (CrashLoopBackOff) after {runs}: {text}"
            return WaitingReason(reason, "container", pod=name_of(pod), container=stopped)
    if (waiting := waiting_of(pod)) is None:
        return None
    text = f"pod {name_of(pod)} is waiting: {waiting}"
    if waiting.reason == "CreateContainerConfigError" or (waiting.part == "scheduling" and is_missing_claim(waiting.message)):
        return missing(text)
    if waiting.part == "image" and waiting.reason not in _FINAL_IMAGE_REASONS:
        return WaitingReason(text, "image", True, RETRIED_SECONDS, pod=name_of(pod), advice=_IMAGE_ADVICE)
    return WaitingReason(text, waiting.part, waiting.reason in _FINAL_IMAGE_REASONS, pod=name_of(pod))


def missing(text: str) -> WaitingReason:
    """Return that something is missing which the pods refer to: it is created soon, or never."""
    return WaitingReason(text, "config", True, MISSING_SECONDS, advice=_MISSING_ADVICE)


def _is_never_restarted(pod: Obj, entry: Obj) -> bool:
    """Whether the kubelet does not start this container again; sidecars have their own policy."""
    spec = pod.get("spec") or {}
    sidecars = {str(each.get("name")) for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"}
    is_waiting = bool((entry.get("state") or {}).get("waiting"))
    return spec.get("restartPolicy") == "Never" and not is_waiting and entry.get("name") not in sidecars


def _ended_before_restart(entry: Obj) -> Obj | None:
    """Return the failed run of a container that its kubelet restarts after a back-off; None if it does not wait for that."""
    state: Obj = entry.get("state") or {}
    ended: Obj | None = state.get("terminated")
    if (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff":
        ended = (entry.get("lastState") or {}).get("terminated")
    return ended if ended and ended.get("exitCode") else None


def _lacks_command(pod: Obj) -> bool:
    """Whether a container of the pod cannot be started, because its command does not exist in the image."""
    for entry in container_statuses(pod):
        for ended in reversed(run_ends(entry)):
            if ended.get("reason") in ("StartError", "ContainerCannotRun"):
                return _COMMAND_NOT_FOUND.search(str(ended.get("message"))) is not None
    return False


def is_over(pod: Obj) -> bool:
    """Whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
