"""Recognizes what a kubelet sends in place of a log: a failure to read it, which is not output of the program. Pure."""

from __future__ import annotations

import re

_MESSAGE = re.compile(rb"(unable to retrieve container logs for \S+://|failed to try resolving symlinks in path )")


def is_kubelet_message(line: bytes) -> bool:
    """Whether a line without a timestamp, of a log requested with timestamps, is the kubelet's own."""
    return _MESSAGE.match(line) is not None
