"""Reads containers' logs for the API server: tail, follow, previous run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from trainwright.api.errors import BadRequest
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.controlplane.apiserver.wire.api_errors import not_found_error
from trainwright.controlplane.node.container import ContainerRun, latest_run, run_of
from trainwright.controlplane.node.container_image import PULL_BACK_OFF, PULL_FAILED
from trainwright.controlplane.node.lifecycle.container_state import published_status
from trainwright.controlplane.node.log_entries import POLL_SECONDS, LogFilter, Position, Stream, read_blocks, tail_position
from trainwright.controlplane.node.registration import NODE_NAME

_IDLE_SECONDS = 1.0
_WORDS = {PULL_FAILED: "image can't be pulled", PULL_BACK_OFF: "trying and failing to pull image"}
"""For reasons that are not said as they are. Source: validateContainerLogStatus of the kubelet."""


class ContainerLogs:
    """The logs below a node's pods folder. Implements the API server's `Logs`."""

    def __init__(self, pods_folder: Path):
        self._pods_folder = pods_folder

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        stream: Stream = "All",
    ) -> Iterator[bytes]:
        """Yield a container's log in chunks; with `follow`, also `b""` from time to time while waiting for more.

        Raises BadRequest if the previous run does not exist, or the container has not started; NotFound for a pod of another node.
        """
        run = self._run(pod, container or "", previous)
        follow = follow and not previous
        start = Position() if tail_lines is None else tail_position(run.log, tail_lines)
        blocks = read_blocks(run.log, start, lambda: not follow or run.termination() is not None)
        filtered = map(LogFilter(stream, _format_time(since), timestamps), blocks)
        chunks = _with_heartbeats(filtered)
        return _limit_bytes(chunks, limit_bytes) if limit_bytes is not None else chunks

    def _run(self, pod: Obj, container: str, previous: bool) -> ContainerRun:
        """Return the run whose log is meant. The refusals are the kubelet's (validateContainerLogStatus)."""
        folder = self._pods_folder / uid_of(pod)
        run, where = latest_run(container, folder), f'container "{container}" in pod "{name_of(pod)}"'
        if previous:
            if run is None or run.attempt == 0:
                raise BadRequest(f"previous terminated {where} not found")
            return run_of(container, run.attempt - 1, folder)
        node = str((pod.get("spec") or {}).get("nodeName") or NODE_NAME)
        if run is None and node != NODE_NAME:
            raise not_found_error(POD, node)
        if run is None:
            state = published_status(pod, container).get("state") or {}
            if "terminated" in state:
                raise BadRequest(f"{where} is terminated")
            reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
            raise BadRequest(f"{where} is waiting to start: {_WORDS.get(reason, reason)}")
        return run


def _format_time(timestamp: datetime | None) -> bytes:
    """Return a time in the log's format."""
    return timestamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if timestamp else b""


def _with_heartbeats(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Limit the frequency of `b""` chunks, which wake a waiting reader."""
    idle = 0.0
    for chunk in chunks:
        idle = 0.0 if chunk else idle + POLL_SECONDS
        if chunk or idle >= _IDLE_SECONDS:
            idle = 0.0
            yield chunk


def _limit_bytes(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return
