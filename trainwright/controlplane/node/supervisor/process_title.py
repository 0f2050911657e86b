"""Shows another command line and other variables for this process in `ps` and /proc.

A forked supervisor is found by the folder of its container, a forked program by its command line.
Standard library only, because a container's supervisor loads this file. Source: arg_start to env_end in proc(5).
"""

from __future__ import annotations

import ctypes

_ARG_START, _ARG_END, _ENV_START, _ENV_END = 47, 48, 49, 50
"""The fields 48 to 51 of /proc/PID/stat."""


def set_title(words: list[str]) -> None:
    """Replace the command line as far as there is room: as many bytes as this program was started with."""
    _fill(_ARG_START, _ARG_END, words)


def show_environment(env: dict[str, str]) -> None:
    """Replace the variables in /proc/PID/environ as far as there is room. The C library must not use the old ones any more."""
    _fill(_ENV_START, _ENV_END, [f"{name}={value}" for name, value in env.items()])


def _fill(start_field: int, end_field: int, words: list[str]) -> None:
    with open("/proc/self/stat", "rb") as file:
        after_name = file.read().rpartition(b")")[2].split()
    start, end = (int(after_name[field - 2]) for field in (start_field, end_field))
    if not 0 < start < end:  # hidden from this process
        return
    room = end - start
    text = b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)[: room - 1]
    ctypes.memmove(start, text.ljust(room, b"\0"), room)
