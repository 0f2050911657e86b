"""What a container's supervisor does with its control groups at the end: counts kills for memory, and removes them.

Standard library only, because a container's supervisor loads this file.
"""

import os


def oom_kills(folder: str) -> int:
    """Return the count of a memory control group, version 1 or 2; 0 if the group or the count is missing (Linux before 4.13)."""
    for name in ("memory.oom_control", "memory.events"):
        try:
            with open(os.path.join(folder, name), encoding="ascii") as file:
                for line in file:
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
        except (FileNotFoundError, NotADirectoryError):  # the file of the other version, or no group any more
            continue
    return 0


def remove_group(folder: str) -> None:
    """Remove the group of a run, and the pod's if it was the last. Groups with processes are left."""
    for each in (folder, os.path.dirname(folder)):
        try:
            os.rmdir(each)
        except OSError:  # has processes, or groups of other runs
            return
