"""Why a TrainJob failed, in one text: its condition, the pods that failed with exit codes and causes, their last log lines."""

from __future__ import annotations

import signal

from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.last_words import LAUNCHER_LINES, last_words
from trainwright.jobs.pods import pods_of, step_of

LOG_LINES = 20
_LOG_BYTES = 64 * 1024
_MOST_PODS = 4


def failure_report(cluster: Cluster, trainjob: Obj) -> str:
    """The report. What cannot be read (pods that are gone, logs that are forbidden) is said, and hides nothing else."""
    verdict = condition(trainjob, "Failed") or {}
    why = f"{verdict.get('reason', 'unknown')}: {verdict.get('message', '')}"
    head = f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} failed: {why}"
    try:
        pods = pods_of(cluster, trainjob)
    except ApiError as error:
        return f"{head}\n(its pods cannot be listed: {error.message})"
    failed = [(pod, ended) for pod in pods for ended in [_ended_badly(pod)] if ended is not None]
    failed.sort(key=_came_first)
    lines = [head]
    for pod, (container, ended) in failed[:_MOST_PODS]:
        lines.append(f"pod {name_of(pod)} (step {step_of(pod)}, container {container}) {_how(ended)}")
        lines.extend(f"    {line}" for line in _last_lines(cluster, pod, container))
    if len(failed) > _MOST_PODS:
        lines.append(f"... and {len(failed) - _MOST_PODS} more pods")
    if not failed:
        lines.append(last_seen(cluster, trainjob))
    return "\n".join(lines)


def last_seen(cluster: Cluster, trainjob: Obj) -> str:
    """What was seen last of a job that does not get on: what its pods wait for, else its latest warning."""
    try:
        for pod in pods_of(cluster, trainjob):
            if (reason := _waits_for(pod)) is not None:
                return f"last seen: pod {name_of(pod)} waits: {reason}"
        events = cluster.list(EVENT, namespace_of(trainjob), field_selector=f"involvedObject.name={name_of(trainjob)}").items
    except ApiError as error:
        return f"last seen: nothing ({error.message})"
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings:
        latest = max(warnings, key=lambda event: event.get("lastTimestamp") or "")
        return f"last seen: {latest.get('reason')}: {latest.get('message')}"
    return "last seen: no pod waits and no warning was written"


def _came_first(failed: tuple[Obj, tuple[str, Obj]]) -> tuple[bool, str]:
    """The cause before its consequences: when one pod fails the others get SIGTERM, or end soon after it."""
    _pod, (_container, ended) = failed
    return ended["exitCode"] == 128 + signal.SIGTERM, str(ended.get("finishedAt") or "")


def _ended_badly(pod: Obj) -> tuple[str, Obj] | None:
    """The first container of a pod that ended with an error, now or in its previous run unless it got over that, and how."""
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            ended = state.get("terminated")
            if ended and ended.get("exitCode"):
                return container["name"], ended
            if ended:
                break
    return None


def _how(ended: Obj) -> str:
    code = ended["exitCode"]
    if ended.get("reason") == "OOMKilled":
        return f"exited {code} (out of memory)"
    if code > 128:
        return f"exited {code} (ended by signal {code - 128})"
    message = f": {ended['message']}" if ended.get("message") else ""
    return f"exited {code}{message}"


def _waits_for(pod: Obj) -> str | None:
    status = pod.get("status") or {}
    for entry in status.get("conditions") or []:
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            return str(entry.get("message") or entry.get("reason"))
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    return None


def _last_lines(cluster: Cluster, pod: Obj, container: str) -> list[str]:
    try:
        chunks = cluster.logs(
            name_of(pod), namespace_of(pod), container=container, tail_lines=LOG_LINES + LAUNCHER_LINES, limit_bytes=_LOG_BYTES
        )
        text = b"".join(chunks).decode("utf-8", "replace")
    except ApiError as error:
        return [f"(its log cannot be read: {error.message})"]
    return last_words(text.splitlines(), LOG_LINES) or ["(its log is empty)"]
