"""Text description of a TrainJob: phase, conditions, steps, pods, and their events."""

from __future__ import annotations

from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.phase import phase_of, verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.kubernetes_events import event_time, events_of, reason_and_message, steps_of
from trainwright.jobs.state.pods import NOT_ITS_JOBSET, index_of, is_jobset_of, pods_of, step_of
from trainwright.jobs.state.progress import progress_line, progress_of
from trainwright.text.foreign_texts import printable

_MAX_EVENTS = 20


def description_of(cluster: Cluster, trainjob: Obj, *, waiting: str = "") -> str:
    """Return a description for people; its format is not meant to be parsed. `waiting` is why the job makes no progress."""
    try:
        jobset: Obj | None = cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        jobset = None
    is_taken = jobset is not None and not is_jobset_of(jobset, trainjob)
    pods = [] if is_taken else pods_of(cluster, trainjob)
    lines = [
        f"Name:       {name_of(trainjob)}",
        f"Namespace:  {namespace_of(trainjob)}",
        f"Runtime:    {trainjob['spec']['runtimeRef']['kind']} {trainjob['spec']['runtimeRef']['name']}",
        f"Phase:      {phase_of(trainjob, None if is_taken else jobset).value}",
        *([f"Waiting:    {waiting}"] if waiting else []),
        f"Progress:   {progress_line(progress_of(trainjob))}",
        f"Created:    {trainjob['metadata'].get('creationTimestamp', '')}",
        *_verdict(trainjob),
        "Conditions:",
        *_conditions(trainjob),
        "Steps:",
        *_steps(trainjob),
        "Pods:",
        *([f"  none: {NOT_ITS_JOBSET}"] if is_taken else map(_pod, pods)),
        "Events:",
        *_events(cluster, trainjob, {step_of(pod) for pod in pods} | steps_of(trainjob)),
    ]
    return "\n".join(printable(line).replace("\n", " ") for line in lines)


def _verdict(trainjob: Obj) -> list[str]:
    """Return why the job's client has given it up, with its pods and their last lines; empty if it was not."""
    if (verdict := verdict_of(trainjob)) is None:
        return []
    lines = [f"Given up:   {verdict.time} {verdict.reason}: {verdict.message}"]
    for pod in verdict.pods:
        code = "" if pod.exit_code is None else f"exit code {pod.exit_code}"
        lines.append("  " + ", ".join(filter(None, (f"pod {pod.name}", pod.container and f"container {pod.container}", code))))
        lines += [f"    {line}" for line in pod.lines]
    return lines + [f"    {line}" for line in verdict.lines]


def _conditions(trainjob: Obj) -> list[str]:
    entries = (trainjob.get("status") or {}).get("conditions") or []
    return [f"  {e['type']}={e['status']} {e.get('reason', '')}: {e.get('message', '')}" for e in entries] or ["  none"]


def _steps(trainjob: Obj) -> list[str]:
    counters = ("active", "ready", "succeeded", "failed", "suspended")
    entries = (trainjob.get("status") or {}).get("jobsStatus") or []
    return [f"  {e['name']}: " + ", ".join(f"{e.get(c, 0)} {c}" for c in counters if e.get(c)) for e in entries] or ["  none"]


def _pod(pod: Obj) -> str:
    status = pod.get("status") or {}
    restarts = sum(int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or [])
    return f"  {name_of(pod)}  {step_of(pod)}[{index_of(pod)}]  {status.get('phase', 'Pending')}  {restarts} restarts"


def _events(cluster: Cluster, trainjob: Obj, steps: set[str]) -> list[str]:
    ours = events_of(cluster, trainjob, steps)
    return [f"  {event_time(e)} {e.get('type')} {reason_and_message(e)}" for e in ours[-_MAX_EVENTS:]] or ["  none"]
