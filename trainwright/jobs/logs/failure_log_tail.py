"""Reads the last lines that a run of a container printed, for failure reports."""

from __future__ import annotations

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.kubelet_messages import is_kubelet_message
from trainwright.jobs.logs.launcher_noise import LAUNCHER_LINES
from trainwright.jobs.logs.log_cursor import split_stamp

LOG_LINES = 20
"""Lines of a program's log in a report."""
_LOG_BYTES = 64 * 1024


def last_printed(cluster: Cluster, pod: Obj, container: str, *, previous: bool) -> list[str]:
    """Return the last lines of the container's current or previous run, with those of its launcher. Raises ApiError."""
    chunks = cluster.logs(
        name_of(pod),
        namespace_of(pod),
        container=container,
        tail_lines=LOG_LINES + LAUNCHER_LINES,
        limit_bytes=_LOG_BYTES,
        timestamps=True,
        previous=previous,
    )
    lines = []
    for line in b"".join(chunks).splitlines():
        stamp, _, text = split_stamp(line)
        if stamp is not None or not is_kubelet_message(line):
            lines.append(text.decode("utf-8", "replace"))
    return lines
