"""The containers whose logs the page shows, and the last lines of a log, and those that follow, for one view of the page.

Kubernetes has no byte ranges of logs, so two standard parameters stand in for them. `tailLines` asks for as many lines as make up the
wanted bytes at the average length so far; kubelets and the embedded node find them from the end of the file. `limitBytes` shows
the first lines. At most the wanted bytes are kept, in memory, until the browser has taken them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple, TypedDict

from trainwright.api.containers import container_statuses
from trainwright.api.objects import Obj, name_of, named, uid_of
from trainwright.cluster.protocol import Cluster, LogOptions
from trainwright.jobs.logs.container_log import MAX_LINE_BYTES, ContainerLog, LineAssembler, is_kubelet_message, split_stamp
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.state.pods import container_of_step, index_of, job_index_of, pods_of, step_of
from trainwright.jobs.wait.waiting import is_shown
from trainwright.text.foreign_texts import printable, without_sequences

Line = tuple[str, str]
"""The time of a line, and its text as the page shows it."""
TOO_FAST = "... lines not shown: they came faster than the page took them"
_PROBE_BYTES, _FEWEST_LINES, _TAIL_ATTEMPTS = 256 * 1024, 100, 4
_IDLE_SECONDS = 20.0
"""After which a silent connection is opened again, if the view is still open."""
CATCH_UP_LINES = 50_000


class LogContainer(TypedDict):
    """`rank` is the completion index of the pod, `job` the index of its Job in the replicated job; `main` runs the step."""

    pod: str
    uid: str
    step: str
    job: int
    rank: int
    phase: str
    created: str
    container: str
    init: bool
    main: bool
    restarts: int
    state: str
    reason: str
    exit_code: int | None


def log_containers(cluster: Cluster, trainjob: Obj) -> list[LogContainer]:
    """Return the containers of all pods, by step, rank and age of the pod; init containers last. Raises ApiError."""
    return [entry for pod in pods_of(cluster, trainjob) for entry in _containers_of(pod)]


def _containers_of(pod: Obj) -> list[LogContainer]:
    main = container_of_step(pod)
    names = [(str(container["name"]), False) for container in pod["spec"].get("containers") or []]
    names += [(str(container["name"]), True) for container in pod["spec"].get("initContainers") or []]
    found = []
    for name, is_init in sorted(names, key=lambda entry: (entry[1], entry[0] != main)):
        state = container_state(pod, name)
        found.append(
            LogContainer(
                pod=name_of(pod),
                uid=uid_of(pod),
                step=step_of(pod),
                job=job_index_of(pod),
                rank=index_of(pod),
                phase=str((pod.get("status") or {}).get("phase") or "Pending"),
                created=str(pod["metadata"].get("creationTimestamp") or ""),
                container=name,
                init=is_init,
                main=not is_init and name == main,
                restarts=state.restarts,
                state=state.name,
                reason=state.reason,
                exit_code=state.exit_code,
            )
        )
    return found


class ContainerState(NamedTuple):
    """`name` is waiting, running or terminated; `reason` may be empty. `is_over`: it will not run again."""

    name: str
    reason: str
    restarts: int
    is_over: bool
    exit_code: int | None

    @property
    def has_run_ended(self) -> bool:
        """Whether the last run has ended, so that its log is complete; another one may follow."""
        return self.is_over or self.name == "terminated" or self.reason == "CrashLoopBackOff"


def container_state(pod: Obj, container: str) -> ContainerState:
    """Return the state of a container; one that the status does not mention yet is waiting."""
    entry = named(container_statuses(pod), container) or {}
    phase = str((pod.get("status") or {}).get("phase") or "")
    has_pod_ended = phase in ("Succeeded", "Failed")
    restarts = int(entry.get("restartCount") or 0)
    for name in ("running", "terminated", "waiting"):
        details = (entry.get("state") or {}).get(name)
        if details is not None:
            code = details.get("exitCode") if name == "terminated" else None
            is_over = has_pod_ended or (name == "terminated" and not _may_restart(pod, container, code))
            return ContainerState(name, str(details.get("reason") or ""), restarts, is_over, code)
    return ContainerState("waiting", str((pod.get("status") or {}).get("reason") or ""), restarts, has_pod_ended, None)


def _may_restart(pod: Obj, container: str, exit_code: int | None) -> bool:
    init = named((pod.get("spec") or {}).get("initContainers"), container)
    if init is not None and init.get("restartPolicy") == "Always":  # a sidecar
        return True
    policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
    return policy != "Never" and (exit_code != 0 or (policy == "Always" and init is None))


class Tail(NamedTuple):
    """Raw lines with their times; `is_cut` if there are lines before them."""

    lines: deque[bytes]
    is_cut: bool


def read_tail(cluster: Cluster, pod: str, namespace: str, size: int, options: LogOptions, *, has_ended: bool) -> Tail:
    """Read the last `size` bytes of a log. A last line without line feed counts once the run has ended. Raises ApiError."""

    def read(part: LogOptions) -> tuple[Tail, int, int]:
        """Return the last lines of one connection, how many it had, and its bytes before long lines were cut."""
        assembler, lines, kept, count, received = LineAssembler(MAX_LINE_BYTES), deque[bytes](), 0, 0, 0
        for chunk in cluster.logs(pod, namespace, **part):
            received += len(chunk)
            for line in assembler.feed(chunk):
                lines.append(line)
                kept, count = kept + len(line) + 1, count + 1
                while kept > size and len(lines) > 1:
                    kept -= len(lines.popleft()) + 1
        is_cut = len(lines) < count
        if has_ended and (rest := assembler.rest()):
            lines.append(rest)
        return Tail(lines, is_cut), count, received

    options = {**options, "timestamps": True}
    first = min(size, _PROBE_BYTES)
    tail, count, received = read({**options, "limit_bytes": first})
    if received < first:  # the log is shorter than the probe, so this is all of it
        return tail
    wanted = 0
    for _ in range(_TAIL_ATTEMPTS):
        wanted = max(2 * wanted, count * size // max(1, received) * 5 // 4, _FEWEST_LINES)
        tail, count, received = read({**options, "tail_lines": wanted})
        if count < wanted:  # there are no more
            return tail
        if received >= size:  # enough; more lines would be cut off again
            break
    return Tail(tail.lines, is_cut=True)


def line_of(raw: bytes) -> Line | None:
    """Return a raw line as the page shows it; None for what a kubelet sends in place of a log, and for encoded results."""
    stamp, time, content = split_stamp(raw)
    text = content.decode("utf-8", "replace")
    return None if not _is_for_people(text) or (stamp is None and is_kubelet_message(raw)) else (time.decode(), shown(text))


def shown(text: str) -> str:
    """Return a text without colours and cursor movements, other control characters as escapes; a redrawn line in its last state."""
    if text.isprintable():
        return text
    states = [state for state in text.split("\r") if state.strip()]
    if "\r" in text:
        text = states[-1].rstrip() if states else ""
    return printable(without_sequences(text))


def _is_for_people(text: str) -> bool:
    """Whether a line is none of those in which the launcher reports results and metrics. Downloads have them."""
    return is_shown(LogLine("", text))


class FollowedLog:
    """The lines of a container after the time `after`, each once. `run` is for a separate thread.

    At most `size` bytes wait to be taken; then the oldest are dropped.
    """

    def __init__(self, cluster: Cluster, pod: Obj, container: str, *, after: str, size: int):
        self._size = size
        self._log = ContainerLog(cluster, pod, container, after=after)
        self._log.idle_seconds, self._log.catch_up = _IDLE_SECONDS, CATCH_UP_LINES
        self._log.has_ended = lambda current: container_state(current, container).is_over
        self._lock = threading.Lock()
        self._lines: deque[Line] = deque()
        self._waiting, self._is_overrun = 0, False
        self.has_ended = False

    def run(self) -> None:
        """Follow the log until it has ended, cannot be read, or the view is closed."""
        try:
            for time, text in self._log.follow():
                if self._log.closed.is_set():  # the tab was closed
                    return
                if not _is_for_people(text):
                    continue
                with self._lock:
                    self._lines.append((time, shown(text)))
                    self._waiting += sum(map(len, self._lines[-1]))
                    while self._waiting > self._size and len(self._lines) > 1:
                        self._waiting -= sum(map(len, self._lines.popleft()))
                        self._is_overrun = True
        finally:
            self.has_ended = True

    def take(self) -> tuple[list[Line], str]:
        """Return the lines since the last call, and the text of the line that has not ended yet."""
        with self._lock:
            lines = [("", TOO_FAST), *self._lines] if self._is_overrun else list(self._lines)
            self._lines.clear()
            self._waiting, self._is_overrun = 0, False
        partial = self._log.partial
        return lines, shown(partial) if _is_for_people(partial) else ""

    def close(self) -> None:
        """Stop the thread, at the latest when its connection is idle."""
        self._log.closed.set()
