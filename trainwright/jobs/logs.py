"""The logs of a TrainJob's pods, followed as they grow: across pods that are not there yet, and connections that break."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from trainwright.api.errors import ApiError, BadRequest, NotFound
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.pods import index_of, pods_of, step_of

LOOK_SECONDS = 0.5
_MOST_PENDING = 10_000
_MOST_LOST = 120
"""Looks in a row that may fail, a minute's worth."""


def log_lines(
    cluster: Cluster,
    trainjob: Obj,
    *,
    step: str = "node",
    index: int | None = None,
    follow: bool = False,
    tail: int | None = None,
) -> Iterator[tuple[str, str]]:
    """`(pod, line)` of a step's pods, or of one completion index; with `follow` until the TrainJob has ended.

    Raises NotFound when the step has no pods and nothing is followed.
    """
    if not follow:
        pods = [pod for pod in pods_of(cluster, trainjob, step) if index is None or index_of(pod) == index]
        if not pods:
            raise NotFound(f"TrainJob {name_of(trainjob)} has no pods of the step {step!r}")
        for pod in pods:
            for line in _lines(cluster, pod, follow=False, tail=tail):
                yield name_of(pod), line
        return
    yield from _followed(cluster, trainjob, step, index, tail)


def _followed(cluster: Cluster, trainjob: Obj, step: str, index: int | None, tail: int | None) -> Iterator[tuple[str, str]]:
    lines = _Lines()
    readers: dict[str, threading.Thread] = {}
    lost = 0
    try:
        while True:
            try:
                over = _is_over(cluster, trainjob)
                pods = pods_of(cluster, trainjob, step)
                lost = 0
            except ApiError:  # logs that are open go on; a cluster that stays away ends it
                lost += 1
                if lost > _MOST_LOST:
                    raise
                over, pods = False, []
            for pod in pods:
                if uid_of(pod) not in readers and (index is None or index_of(pod) == index) and _has_started(pod):
                    readers[uid_of(pod)] = threading.Thread(target=_read, args=(cluster, pod, tail, lines), daemon=True)
                    readers[uid_of(pod)].start()
            done = over and not any(reader.is_alive() for reader in readers.values())
            yield from lines.arriving(0 if done else LOOK_SECONDS)
            if done:
                return
    finally:
        lines.closed.set()


class _Lines:
    """Lines on their way from the readers of pods to the one who asked; readers end when it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._pending: queue.Queue[tuple[str, str]] = queue.Queue(maxsize=_MOST_PENDING)

    def put(self, pod: str, line: str) -> bool:
        """False when nobody wants it any more."""
        while not self.closed.is_set():
            try:
                self._pending.put((pod, line), timeout=LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def arriving(self, seconds: float) -> Iterator[tuple[str, str]]:
        """What has come, and what comes within that time."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                yield self._pending.get(timeout=left) if left > 0 else self._pending.get_nowait()
            except queue.Empty:
                return


def _read(cluster: Cluster, pod: Obj, tail: int | None, lines: _Lines) -> None:
    """Follow one pod to the end of its log; a connection that breaks is made again, from the line after the last one."""
    seen, lost = 0, 0
    while not lines.closed.is_set():
        try:
            for number, line in enumerate(_lines(cluster, pod, follow=True, tail=tail)):
                lost = 0
                if number >= seen:
                    if not lines.put(name_of(pod), line):
                        return
                    seen = number + 1
            return
        except BadRequest:  # its container has not started
            lines.closed.wait(LOOK_SECONDS)
        except NotFound:
            return
        except ApiError as error:
            lost += 1
            if tail is not None or lost > _MOST_LOST:  # a tail cannot be counted again
                lines.put(name_of(pod), f"(the connection to this log broke: {error.message})")
                return
            lines.closed.wait(LOOK_SECONDS)
            if not _still_there(cluster, pod):
                return


def _lines(cluster: Cluster, pod: Obj, *, follow: bool, tail: int | None) -> Iterator[str]:
    container = step_of(pod) if step_of(pod) in _names(pod) else _names(pod)[0]
    pending = b""
    for chunk in cluster.logs(name_of(pod), namespace_of(pod), container=container, follow=follow, tail_lines=tail):
        *complete, pending = (pending + chunk).split(b"\n")
        for line in complete:
            yield line.decode("utf-8", "replace")
    if pending:
        yield pending.decode("utf-8", "replace")


def _names(pod: Obj) -> list[str]:
    return [str(container["name"]) for container in pod["spec"]["containers"]]


def _has_started(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def _is_over(cluster: Cluster, trainjob: Obj) -> bool:
    try:
        now = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return True
    return uid_of(now) != uid_of(trainjob) or phase_of(now).is_final


def _still_there(cluster: Cluster, pod: Obj) -> bool:
    try:
        return uid_of(cluster.get(POD, name_of(pod), namespace_of(pod))) == uid_of(pod)
    except NotFound:
        return False
    except ApiError:
        return True
