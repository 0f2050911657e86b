"""Reads the last lines that a run of a container printed, for failure reports.

An API server applies `limitBytes` from the begin of a tail, so that it would cut off the end: the answer is read to its end instead,
and only so much of it is kept as a report needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import LineAssembler, is_kubelet_message, split_stamp
from trainwright.jobs.logs.launcher_noise import LAUNCHER_LINES, LOG_LINES
from trainwright.jobs.logs.log_text import final_state, shortened

READ_LINES = LOG_LINES + LAUNCHER_LINES
_TAILS = (READ_LINES, LOG_LINES, 5, 1)
"""Lines to ask for, fewer if the answer is too long."""
_MAX_BYTES = 16 * 1024 * 1024
"""Of an answer. Kubelets split lines at 16 KiB, so that theirs has 3 MiB at most."""
_WHOLE_SECOND = 1.0
"""Resolution of the times in a pod's status."""
_LINE_BYTES = 8 * 1024


def last_printed(cluster: Cluster, pod: Obj, container: str, *, previous: bool, finished: str = "") -> list[str]:
    """Return the last lines of the container's current or previous run, with those of its launcher, shortened. Raises ApiError.

    `finished` is the RFC 3339 time at which the run has ended. None of a run that began later are returned: the container may have
    been restarted since its status was read.
    """
    for tail in _TAILS:
        if (lines := _read(cluster, pod, container, tail, previous=previous)) is not None:
            return [] if _began_after(lines, finished) else [text for line in lines if (text := _text_of(line)) is not None]
    return []


def _began_after(lines: Sequence[bytes], finished: str) -> bool:
    first = next((stamp for line in lines if (stamp := split_stamp(line)[0]) is not None), None)
    if first is None or not finished:
        return False
    return first / 1e9 > datetime.fromisoformat(finished).timestamp() + _WHOLE_SECOND


def _read(cluster: Cluster, pod: Obj, container: str, tail: int, *, previous: bool) -> Sequence[bytes] | None:
    """Return the last `tail` lines; None if they are too long to be read, and fewer can be asked for."""
    chunks = cluster.logs(
        name_of(pod), namespace_of(pod), container=container, tail_lines=tail, timestamps=True, previous=previous
    )
    lines, assembler, size = deque[bytes](maxlen=tail), LineAssembler(_LINE_BYTES), 0
    for chunk in chunks:
        size += len(chunk)
        if size > _MAX_BYTES and tail > _TAILS[-1]:
            return None
        lines.extend(assembler.feed(chunk))
    if rest := assembler.rest():
        lines.append(rest)
    return lines


def _text_of(line: bytes) -> str | None:
    """Return the text of a line; None for what a kubelet sends in place of a log."""
    stamp, _, text = split_stamp(line)
    if stamp is None and is_kubelet_message(line):
        return None
    return shortened(final_state(text.decode("utf-8", "replace")))
