"""Shows another command line for this process in `ps` and /proc: a forked supervisor is found by the folder of its container.

Standard library only, because a container's supervisor loads this file. Source: arg_start and arg_end in proc(5).
"""

from __future__ import annotations

import ctypes

_ARG_START, _ARG_END = 47, 48
"""The fields 48 and 49 of /proc/PID/stat."""


def set_title(words: list[str]) -> None:
    """Replace the command line as far as there is room: as many bytes as this program was started with."""
    with open("/proc/self/stat", "rb") as file:
        after_name = file.read().rpartition(b")")[2].split()
    start, end = (int(after_name[field - 2]) for field in (_ARG_START, _ARG_END))
    if not 0 < start < end:  # hidden from this process
        return
    room = end - start
    title = b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)[: room - 1]
    ctypes.memmove(start, title.ljust(room, b"\0"), room)
