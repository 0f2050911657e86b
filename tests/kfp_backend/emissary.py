"""Stands in for Argo's emissary, the first process of a step's container. A script that imports nothing of the project.

Usage: emissary.py COMMAND... It starts the command in a process group of its own, writes its process id to stdout, and passes
SIGTERM on to the whole group. Once a second it looks whether the command, its direct child, has ended; then the container ends:
whatever is left in it is killed, in its group or not. Its exit code is the command's, 128 and the number after a signal.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 1.0


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # adopt what outlives its parent, to kill it in the end
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until there is a group to pass it on to
    command = sys.argv[1:]
    child = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        setpgroup=0,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
    )

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    print(child, flush=True)
    status = wait_for(child)
    kill_all()
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def wait_for(child: int) -> int:
    while True:
        time.sleep(POLL_SECONDS)  # also when a signal arrives
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended == child:
            return status


def kill_all() -> None:
    """Kill the processes that are left, and those that are orphaned by that, until there are none."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            left = [int(word) for word in file.read().split()]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
