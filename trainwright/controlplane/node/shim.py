"""The parent of one container's process: starts it, waits for it, writes down how it ended. Run as a script, imports nothing of ours.

It outlives the node agent, so that an exit code is never lost and a running container can be adopted after a crash.
Usage: shim.py FOLDER LOCK_FD. FOLDER/spec.json (0600, removed once read) holds argv, env, cwd and log. The lock that
LOCK_FD holds says, for as long as it is held, that this process lives. Writes state.json when started, exit.json when ended.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
COMMAND_NOT_FOUND = 127
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    folder, lock = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(lock, False)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # orphans of the container become ours, to be ended with it
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    os.unlink(os.path.join(folder, "spec.json"))
    # The child begins with our dispositions: a signal sent before it has its own must wait, or it would be ignored.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    pid = os.fork()
    if pid == 0:
        become(spec)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    write(folder, "state.json", {"pid": pid, "startedAt": time.time()})
    status = wait_for(pid)
    end_descendants()
    code = os.waitstatus_to_exitcode(status)
    ended = {"code": code if code >= 0 else 128 - code, "signal": -code if code < 0 else 0, "finishedAt": time.time()}
    write(folder, "exit.json", ended)


def become(spec: dict) -> None:  # type: ignore[type-arg]
    """In the child: turn into the container's process; never returns."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.umask(0o077)
    output = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606  (an argument list, no shell)
    except OSError as error:
        os.write(2, f"cannot start {spec['argv'][0]!r} in {spec['cwd']!r}: {error.strerror}\n".encode())
    os._exit(COMMAND_NOT_FOUND)


def wait_for(pid: int) -> int:
    """Reap whatever ends until the container's own process does."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def end_descendants() -> None:
    """A container ends with its first process: kill what is left of it, until nothing is."""
    while True:
        for child in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list:  # type: ignore[type-arg]
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def write(folder: str, name: str, content: dict) -> None:  # type: ignore[type-arg]
    """Atomically, so that a reader sees all of it or nothing; a full disk is retried, since the exit code must not be lost."""
    path = os.path.join(folder, name)
    while True:
        try:
            with open(path + ".new", "w", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
                json.dump(content, file)
            os.replace(path + ".new", path)
            return
        except FileNotFoundError:  # the pod's folder was removed: nobody wants to know
            return
        except OSError:
            time.sleep(1)


if __name__ == "__main__":
    main()
