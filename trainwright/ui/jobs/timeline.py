"""The timeline of a TrainJob, when it waited, was suspended and ran, and its pods: where they run, how their containers are or have
ended, and restarts. Pure.

Kubernetes keeps only the last transition of a condition. Earlier ones are those that were seen while the page was open, and those
that events tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from trainwright.api.conditions import condition
from trainwright.api.containers import run_ends
from trainwright.api.objects import Obj, is_deleting, name_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.jobs.diagnosis.pod_failure import describe_exit
from trainwright.jobs.state.kubernetes_events import event_time, first_time, involved_object
from trainwright.jobs.state.pod_history import SeenPod
from trainwright.jobs.state.pods import place_of
from trainwright.text.foreign_texts import one_line
from trainwright.ui.jobs.row import ended_at, final_condition

SpanKind = Literal["waiting", "suspended", "starting", "running", "succeeded", "failed", "restarting", "ended"]
_MAX_LANES = 40
"""More pods of one step are one lane."""
_OF_PHASES: Mapping[str, SpanKind] = {
    Phase.Queued: "waiting",
    Phase.Starting: "starting",
    Phase.Running: "running",
    Phase.Restarting: "restarting",
    Phase.Suspended: "suspended",
}
_MAX_TEXT = 1000
_NEVER = "1970-01-01T"
"""When a container began that could not be started, as a kubelet says."""


class Span(TypedDict):
    """`until` is empty while it lasts. `note` says how it ended."""

    kind: SpanKind
    since: str
    until: str
    note: str


class Lane(TypedDict):
    """A line of the timeline: the job, a pod's place, or a whole step."""

    name: str
    spans: list[Span]


class Timeline(TypedDict):
    """`until` is empty while the job is active."""

    since: str
    until: str
    lanes: list[Lane]


class Transition(TypedDict):
    """A phase that was seen, and since when; empty for the first one, which began before somebody looked."""

    phase: str
    since: str


def timeline_of(
    trainjob: Obj, pods: Sequence[PodRow], events: Iterable[Obj], transitions: Sequence[Transition], *, steps: Sequence[str] = ()
) -> Timeline:
    """Return the timeline.

    Args:
        trainjob: The job.
        pods: Its pods, also those that are gone.
        events: Events of its pods: of those that nobody has seen, they are all that is left.
        transitions: Phases that were seen so far, the current one last.
        steps: Names of the replicated jobs in their order; others come last.
    """
    created = str(trainjob["metadata"].get("creationTimestamp") or "")
    ended = ended_at(trainjob)
    return Timeline(
        since=created,
        until=ended,
        lanes=[
            Lane(name="TrainJob", spans=_job_spans(trainjob, pods, transitions, created, ended)),
            *_lanes(pods, events, steps),
        ],
    )


def _job_spans(trainjob: Obj, pods: Sequence[PodRow], transitions: Sequence[Transition], created: str, ended: str) -> list[Span]:
    points = _points(trainjob, pods, created)
    seen = [
        (each["since"], kind) for each in transitions if each["since"] and (kind := _OF_PHASES.get(each["phase"])) is not None
    ]
    now_kind = _OF_PHASES.get(transitions[-1]["phase"]) if transitions else None
    if not seen and now_kind is not None and points[-1][1] != now_kind:  # as when a container waits to be restarted
        last_end = max((run["ended"] for pod in pods for run in _main_runs(pod)), default="")
        points.append((max(last_end, points[-1][0]), now_kind))
    if seen:  # what was seen outranks what is concluded
        points = [point for point in points if point[0] < seen[0][0]] + seen
    spans: list[Span] = []
    for number, (since, kind) in enumerate(points):
        until = points[number + 1][0] if number + 1 < len(points) else ended
        if ended and since > ended:  # what changes after the end is not of the training
            break
        if spans and spans[-1]["kind"] == kind:
            spans[-1]["until"] = until
        elif since != until:
            spans.append(Span(kind=kind, since=since, until=until, note=""))
    if ended:
        has_failed = phase_of(trainjob) is Phase.Failed
        note = str((final_condition(trainjob) or {}).get("reason") or "") if has_failed else ""
        spans.append(Span(kind="failed" if has_failed else "succeeded", since=ended, until=ended, note=note))
    return spans


def _points(trainjob: Obj, pods: Sequence[PodRow], created: str) -> list[tuple[str, SpanKind]]:
    """Return since when the job was in which state, as its conditions and pods tell."""
    points: list[tuple[str, SpanKind]] = [(created, "waiting")]
    if placed := sorted(pod["scheduled"] or pod["created"] for pod in pods):
        points.append((placed[0], "starting"))
    if started := sorted(run["started"] for pod in pods for run in _main_runs(pod) if run["started"]):
        points.append((started[0], "running"))
    suspended = condition(trainjob, "Suspended")
    if suspended is not None and (since := str(suspended.get("lastTransitionTime") or "")):
        points.append((since, "suspended" if suspended.get("status") == "True" else "starting"))
    return sorted(points, key=lambda point: point[0])


def _main_runs(pod: PodRow) -> list[Run]:
    return [run for container in pod["containers"] if not container["init"] for run in container["runs"]]


def _lanes(pods: Sequence[PodRow], events: Iterable[Obj], steps: Sequence[str]) -> list[Lane]:
    by_place: dict[tuple[str, int, int], list[PodRow]] = {}
    for pod in pods:
        by_place.setdefault((pod["step"], pod["job"], pod["index"]), []).append(pod)
    order = {step: number for number, step in enumerate(steps)}
    found: list[Lane] = []
    for step in sorted({place[0] for place in by_place}, key=lambda name: (order.get(name, len(order)), name)):
        places = sorted(place for place in by_place if place[0] == step)
        if len(places) > _MAX_LANES:  # thousands of lines would be read by nobody
            every = [pod for place in places for pod in by_place[place]]
            found.append(Lane(name=f"{step} ({len(places)} pods)", spans=_merged(every)))
            continue
        for place in places:
            name = step if len(places) == 1 else f"{step}-{place[1]}-{place[2]}"
            found.append(Lane(name=name, spans=[span for pod in by_place[place] for span in _pod_spans(pod)]))
    return [*found, *_lanes_of_events(events, {pod["name"] for pod in pods})]


def _merged(pods: list[PodRow]) -> list[Span]:
    """Return one span for many pods: from the first start to the last end, and how many have failed."""
    runs = [run for pod in pods for run in _main_runs(pod)]
    since = min((run["started"] for run in runs if run["started"]), default="")
    created = min(pod["created"] for pod in pods)
    if not since:
        return [Span(kind="waiting", since=created, until="", note="")]
    failed = sum(1 for run in runs if run["code"])
    is_running = any(not run["ended"] for run in runs)
    until = "" if is_running else max(run["ended"] for run in runs)
    kind: SpanKind = "failed" if failed else "running" if is_running else "succeeded"
    note = f"{failed} of {len(runs)} runs failed" if failed else ""
    return [Span(kind="waiting", since=created, until=since, note=""), Span(kind=kind, since=since, until=until, note=note)]


def _pod_spans(pod: PodRow) -> list[Span]:
    runs = [run for container in pod["containers"] if not container["init"] for run in container["runs"]]
    init = [run for container in pod["containers"] if container["init"] for run in container["runs"]]
    first = min((run["started"] for run in [*init, *runs] if run["started"]), default="")
    spans = [Span(kind="waiting", since=pod["created"], until=first, note=pod["detail"] if not first else "")]
    spans += [_run_span(run, "starting") for run in init if run["started"]]
    spans += [_run_span(run, "running") for run in sorted(runs, key=lambda run: run["started"]) if run["started"]]
    if pod["gone"]:
        last = max([pod["created"], *(run["ended"] or run["started"] for run in [*init, *runs])])
        for span in spans:
            if not span["until"]:
                span["until"], span["note"] = max(last, span["since"]), span["note"] or "deleted"
    return [span for span in spans if span["since"] != span["until"] or span["kind"] == "failed"]


def _run_span(run: Run, kind: SpanKind) -> Span:
    if not run["ended"]:
        return Span(kind=kind, since=run["started"], until="", note="")
    if not run["code"]:
        return Span(kind="succeeded" if kind == "running" else kind, since=run["started"], until=run["ended"], note="exit code 0")
    note = f"exit code {run['code']}" + (f" ({run['reason']})" if run["reason"] not in ("", "Error") else "")
    return Span(kind="failed", since=run["started"], until=run["ended"], note=note)


def _lanes_of_events(events: Iterable[Obj], known: set[str]) -> list[Lane]:
    """Return a lane for each pod that is known by its events alone."""
    spans: dict[str, tuple[str, str]] = {}
    for event in events:
        name, first, last = involved_object(event), first_time(event), event_time(event)
        if (event.get("involvedObject") or {}).get("kind") != "Pod" or name in known or not first:
            continue
        earliest, latest = spans.get(name, (first, last))
        spans[name] = (min(earliest, first), max(latest, last))
    named = sorted(spans.items(), key=lambda entry: entry[1])[-_MAX_LANES:]
    return [
        Lane(name=f"{name} (gone)", spans=[Span(kind="ended", since=since, until=until, note="known by its events")])
        for name, (since, until) in named
    ]


class Run(TypedDict):
    """One run of a container; `code` is None while it has not ended."""

    started: str
    ended: str
    code: int | None
    reason: str
    message: str


class ContainerRow(TypedDict):
    """`runs` are those that are known, oldest first: of earlier ones, Kubernetes keeps only the last."""

    name: str
    init: bool
    state: str
    detail: str
    restarts: int
    runs: list[Run]


class PodRow(TypedDict):
    """`gone` is whether it was deleted; what is shown is then what was last seen of it."""

    uid: str
    name: str
    step: str
    job: int
    index: int
    attempt: int
    phase: str
    detail: str
    node: str
    restarts: int
    created: str
    scheduled: str
    gone: bool
    deleting: bool
    containers: list[ContainerRow]


def pod_rows(pods: Iterable[Obj], seen: Iterable[SeenPod]) -> list[PodRow]:
    """Return the current pods, and those that are gone, sorted by step, index and age."""
    present = {uid_of(pod): pod for pod in pods}
    rows = [_row(present.get(uid_of(each.pod), each.pod), each) for each in seen]
    return sorted(rows, key=lambda row: (row["step"], row["job"], row["index"], row["created"], row["name"]))


def _row(pod: Obj, seen: SeenPod) -> PodRow:
    status, place = pod.get("status") or {}, place_of(pod)
    inits, mains = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    containers = [
        *(_container(entry, seen, init=True) for entry in inits),
        *(_container(entry, seen, init=False) for entry in mains),
    ]
    found = condition(pod, "PodScheduled")
    return PodRow(
        uid=uid_of(pod),
        name=name_of(pod),
        step=place.step,
        job=place.job,
        index=place.completion_index,
        attempt=seen.restart_attempt,
        phase=str(status.get("phase") or "Pending"),
        detail=_detail(pod)[:_MAX_TEXT],
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        restarts=sum(container["restarts"] for container in containers),
        created=seen.created,
        scheduled=str(found.get("lastTransitionTime") or "") if found is not None and found.get("status") == "True" else "",
        gone=seen.is_gone,
        deleting=is_deleting(pod) and not seen.is_gone,
        containers=containers,
    )


def _container(entry: Obj, seen: SeenPod, *, init: bool) -> ContainerRow:
    name, state = str(entry.get("name") or ""), entry.get("state") or {}
    runs: dict[str, Run] = {
        key.finished: _run(ended) for key, ended in seen.failed_runs.items() if key.container == name and key.finished
    }
    runs |= {str(ended.get("finishedAt") or ""): _run(ended) for ended in run_ends(entry)}
    current = state.get("running")
    listed = [runs[finished] for finished in sorted(runs)]
    if current is not None:
        listed.append(Run(started=str(current.get("startedAt") or ""), ended="", code=None, reason="", message=""))
    return ContainerRow(
        name=name,
        init=init,
        state=next((kind for kind in ("running", "terminated", "waiting") if kind in state), "waiting"),
        detail=_state_text(state)[:_MAX_TEXT],
        restarts=int(entry.get("restartCount") or 0),
        runs=listed,
    )


def _run(ended: Obj) -> Run:
    started, finished = str(ended.get("startedAt") or ""), str(ended.get("finishedAt") or "")
    return Run(
        started=finished if started.startswith(_NEVER) else started,
        ended=finished,
        code=int(ended.get("exitCode") or 0),
        reason=str(ended.get("reason") or ""),
        message=str(ended.get("message") or "")[:_MAX_TEXT],
    )


def _state_text(state: Obj) -> str:
    if (ended := state.get("terminated")) is not None:
        return one_line(describe_exit(ended)) if ended.get("exitCode") else "completed"
    if (waiting := state.get("waiting")) is not None:
        return one_line(f"{waiting.get('reason') or 'waiting'}: {waiting.get('message') or ''}").removesuffix(": ")
    return "running" if state.get("running") is not None else ""


def _detail(pod: Obj) -> str:
    """Return what is wrong with a pod as a whole, in words; its containers say what is wrong with them."""
    status = pod.get("status") or {}
    if status.get("reason"):
        return one_line(f"{status['reason']}: {status.get('message') or ''}").removesuffix(": ")
    if (disrupted := condition(pod, "DisruptionTarget")) is not None and disrupted.get("status") == "True":
        return one_line(f"{disrupted.get('reason')}: {disrupted.get('message') or ''}").removesuffix(": ")
    placed = condition(pod, "PodScheduled")
    if placed is not None and placed.get("status") == "False":
        return one_line(f"{placed.get('reason')}: {placed.get('message') or ''}").removesuffix(": ")
    return ""
