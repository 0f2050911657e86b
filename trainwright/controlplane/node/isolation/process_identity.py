"""Tells a process from a later one with the same id. Standard library only, because a container's supervisor loads this file."""


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot. Raises FileNotFoundError, ProcessLookupError. Source: proc(5)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""
