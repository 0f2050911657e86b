"""The termination message that a container left: the file of its termination message, or the end of its log. Pure.

Limits of the kubelet: the last 4096 bytes of the file, 80 lines or 2048 bytes of the log, 12 KiB for all containers of a pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.objects import Obj

DEFAULT_PATH = "/dev/termination-log"
FILE_BYTES = 4096
LOG_BYTES = 2048
LOG_LINES = 80
POD_BYTES = 12 * 1024


def termination_message(container: Obj, code: int, file_end: bytes, log_end: bytes) -> str:
    """Return the message of a container that ended with `code`.

    `file_end` is (at least) the end of its message file, `log_end` that of its log without headers; the log counts after a
    failure only, with the policy FallbackToLogsOnError, and if the file is empty.
    """
    if file_end:
        return _text(file_end[-FILE_BYTES:])
    if code == 0 or container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
        return ""
    lines = log_end[-LOG_BYTES:].split(b"\n")  # a progress bar's carriage returns do not end a line
    whole = LOG_LINES + (not lines[-1])
    return _text(b"\n".join(lines[-whole:]))


def limit_messages(statuses: Sequence[Obj]) -> None:
    """Cut the messages of a pod's container statuses, in place, so that together they fit into their limit."""
    if not statuses:
        return
    limit = POD_BYTES // len(statuses)
    for status in statuses:
        for key in ("state", "lastState"):
            terminated = (status.get(key) or {}).get("terminated") or {}
            message = str(terminated.get("message") or "").encode()
            if len(message) > limit:
                terminated["message"] = _text(message[:limit])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
