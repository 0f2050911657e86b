"""The file in which a container says why it ended, or what it found out: the kubelet shows it in the status of the pod.

Whoever may read the pod reads it, without the right to read logs, and as long as the pod exists.
"""

from __future__ import annotations

import os

TERMINATION_LOG = "/dev/termination-log"
TERMINATION_LOG_VARIABLE = "TRAINWRIGHT_TERMINATION_LOG"
"""Names another file: where a container has no file system apart, its mounts have other paths."""
_MAX_BYTES = 4096
"""What the kubelet keeps."""


def write_termination_message(text: str) -> None:
    """Write the message of this container, cut at its end, where there is a file for it."""
    content = text.encode("utf-8", "replace")
    if len(content) > _MAX_BYTES:
        content = content[: _MAX_BYTES - 4].decode("utf-8", "ignore").encode() + " …".encode()
    try:
        descriptor = os.open(os.environ.get(TERMINATION_LOG_VARIABLE) or TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError:  # only the kubelet makes it, and a user without rights to it has none
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
