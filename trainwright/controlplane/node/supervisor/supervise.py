"""The supervisor of a container's process: starts it, waits for it, records its exit. Standard library and small modules only.

It outlives the node agent, so that exit codes are not lost and running containers can be adopted after a crash.
Usage: supervise.py FOLDER LOCK_FD, or `main` in a process forked by spawner.py. The lock on LOCK_FD is held while it
is running. FOLDER/spec.json (0600, removed after reading) has argv, env, cwd, log and, optionally, umask, isolation (see
isolation/plan.py), cgroup (folders that the process joins), memory_limit (bytes, where no cgroup keeps it), notify and notify_name.
Writes state.json when the command has been executed and exit.json on exit; then a line with notify_name to the FIFO `notify`.
Output is written to `log`, then `log.1`, `log.2` ..., in the CRI log format: `2026-01-02T03:04:05.000000006Z stdout F text`, with
P instead of F for a partial line.
"""

import _thread
import errno
import json
import os
import select
import signal
import sys
import time

if __name__ == "__main__":  # started with -P: the package is not in the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from trainwright.controlplane.node.limits.group_files import oom_kills, remove_group
from trainwright.controlplane.node.supervisor.process_start import DEFAULT_UMASK, StartError, start_process
from trainwright.controlplane.node.supervisor.start_command import boot_id, start_time

TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STREAMS = (b"stdout", b"stderr")
READ_BYTES = 64 * 1024
LINE_BYTES = 16 * 1024
"""Longer lines are split, like in container runtimes."""
PARTIAL_SECONDS = 0.1
"""How long a partial line is buffered before it is written."""
SEGMENT_BYTES = 10 * 1024 * 1024
SEGMENTS = 5
"""A kubelet's defaults: a full log file is followed by the next one, and the oldest of more than five is removed."""
START_ERROR_CODE = 128
SPARE, SPARE_BYTES = "spare", 4096
"""A file that becomes the last record of a run when the disk is full."""


def main(folder: str, lock: int, *, runs_here: bool = False) -> None:
    """Run the container whose spec is in `folder` until its end. Needs a process with a single thread.

    With `runs_here`, RunsHere is raised in the container's process (see process_start.py).
    """
    os.set_inheritable(lock, False)
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    become_subreaper()
    spec = take_spec(folder)
    if spec is None:
        return  # another supervisor runs it: this start was repeated
    streams = {name: os.pipe() for name in STREAMS}
    try:
        pid = start_process(spec, streams[b"stdout"][1], streams[b"stderr"][1], runs_here=runs_here)
    except StartError as error:  # such as a command that does not exist: recorded like an exit
        ended = {"code": START_ERROR_CODE, "signal": 0, "reason": "StartError", "message": str(error), "finishedAt": time.time()}
        record(folder, "exit.json", ended, spec)
    else:
        for _, writer in streams.values():
            os.close(writer)
        supervise(folder, spec, pid, Output(spec["log"], {reader: name for name, (reader, _) in streams.items()}))
    if "isolation" in spec:
        from trainwright.controlplane.node.isolation.host_folders import remove_layer

        remove_layer(spec["isolation"]["layer"])
    for path in spec.get("cgroup") or []:
        remove_group(path)


def take_spec(folder: str):  # type: ignore[no-untyped-def]
    """Return the spec of the run, or None if another supervisor has taken it: only one can remove the file."""
    path = os.path.join(folder, "spec.json")
    try:
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
        os.unlink(path)
    except FileNotFoundError:
        return None
    return spec


def supervise(folder: str, spec: dict, pid: int, output: "Output") -> None:  # type: ignore[type-arg]
    """Record that the container has started, and its exit."""
    keep_spare(folder)
    watchdog = watch_memory(spec)
    if "isolation" in spec:
        write(folder, "identity.json", identity(spec, pid))
    record(folder, "state.json", {"pid": pid, "startedAt": time.time(), "boot": boot_id()}, spec)
    status = wait_for(pid)
    finished = time.time()
    kill_descendants()
    output.finish()
    code = os.waitstatus_to_exitcode(status)
    ended = {"code": code if code >= 0 else 128 - code, "signal": -code if code < 0 else 0, "finishedAt": finished}
    if any(oom_kills(path) for path in spec.get("cgroup") or []) or (watchdog and watchdog.has_killed):
        record(folder, "exit.json", {**ended, "reason": "OOMKilled"}, spec)
    else:
        record(folder, "exit.json", ended, spec)
    drop_spare(folder)


def watch_memory(spec: dict):  # type: ignore[type-arg,no-untyped-def]
    """Start a watchdog if the container has a memory limit that no control group keeps."""
    if not spec.get("memory_limit"):
        return None
    from trainwright.controlplane.node.limits.memory_watchdog import MemoryWatchdog

    return MemoryWatchdog(os.getpid(), spec["memory_limit"])


def identity(spec: dict, pid: int) -> dict:  # type: ignore[type-arg]
    """Return what a command needs to join the container: see exec_child.py."""
    plan = spec["isolation"]
    names = ("uid", "gid", "groups", "capabilities", "no_new_privs", "map_all_ids", "processes")
    process = {"pid": pid, "started": start_time(pid), "cwd": spec["cwd"], "umask": spec.get("umask", DEFAULT_UMASK)}
    return {**process, "cgroup": spec.get("cgroup") or [], **{name: plan[name] for name in names}}


def become_subreaper() -> None:
    """Become the parent of descendants that lose theirs, to end them; on Linux."""
    if sys.platform == "linux":
        from trainwright.controlplane.node.isolation.namespaces import PR_SET_CHILD_SUBREAPER, prctl

        prctl(PR_SET_CHILD_SUBREAPER, 1)


def wait_for(pid: int) -> int:
    """Reap children until the container's main process exits."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def kill_descendants() -> None:
    """Kill all remaining processes: a container terminates with its main process."""
    while True:
        for child in children():
            os.kill(child, signal.SIGKILL)  # a child exists until it is reaped
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:  # none is left
            return


def children() -> list:  # type: ignore[type-arg]
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # not Linux
        return []


class Output:
    """Copies the container's output from pipes to the log, in its own thread until `finish`."""

    def __init__(self, path: str, streams: dict):  # type: ignore[type-arg]
        self.log = Segments(path)
        self.streams = streams
        self.partial = dict.fromkeys(streams, b"")  # incomplete lines
        self.flush_at = dict.fromkeys(streams, 0.0)  # when incomplete lines are written
        self.ended, self.end = os.pipe()
        self.running = _thread.allocate_lock()
        self.running.acquire()
        _thread.start_new_thread(self.run_and_release, ())

    def finish(self) -> None:
        """Write the remaining data in the pipes, after all processes have exited."""
        os.close(self.end)
        self.running.acquire()

    def run_and_release(self) -> None:
        try:
            self.run()
        finally:
            self.running.release()

    def run(self) -> None:
        sources = Sources((*self.streams, self.ended))
        last = False
        while True:
            waits = last or any(self.partial.values())
            ready = sources.ready(0 if last else PARTIAL_SECONDS if waits else None)
            if self.ended in ready:
                last = True
                sources.remove(self.ended)
                ready.remove(self.ended)
            elif last and not ready:
                return  # the pipes are empty, and all processes that could fill them have ended
            for source in ready:
                data = os.read(source, READ_BYTES)
                if data:
                    self.take(source, data)
                else:
                    sources.remove(source)
            for source, flush_at in self.flush_at.items():
                if last or time.monotonic() >= flush_at:
                    self.flush_partial(source)

    def take(self, source: int, data: bytes) -> None:
        lines, newline, rest = (self.partial[source] + data).rpartition(b"\n")
        if newline:
            head = self.head(source, b"F")
            self.log.write(head + lines.replace(b"\n", b"\n" + head) + b"\n")
        if newline or not self.partial[source]:
            self.flush_at[source] = time.monotonic() + PARTIAL_SECONDS
        self.partial[source] = rest
        if len(rest) > LINE_BYTES:
            self.flush_partial(source)

    def flush_partial(self, source: int) -> None:
        if self.partial[source]:
            self.log.write(self.head(source, b"P") + self.partial[source] + b"\n")
            self.partial[source] = b""

    def head(self, source: int, tag: bytes) -> bytes:
        stream: bytes = self.streams[source]
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds:09}Z "
        return stamp.encode() + stream + b" " + tag + b" "


class Sources:
    """Files that are waited for. On Linux they come in the order in which they got something to read: lines of both streams too."""

    def __init__(self, files: tuple):  # type: ignore[type-arg]
        self.is_linux = sys.platform == "linux"
        self.poll = select.epoll() if self.is_linux else select.poll()
        for file in files:
            self.poll.register(file, select.POLLIN)
        self.remove = self.poll.unregister

    def ready(self, seconds: float | None) -> list:  # type: ignore[type-arg]
        """Wait for at most so many seconds (None: without limit), and return the files that can be read."""
        return [file for file, _ in self.poll.poll(seconds if self.is_linux or seconds is None else seconds * 1000)]


class Segments:
    """The files of a log: PATH, PATH.1, PATH.2 ..., of which the last SEGMENTS are kept."""

    def __init__(self, path: str):
        self.path, self.number, self.is_torn = path, 0, False
        self.file = self.open(path)
        self.size = os.fstat(self.file).st_size

    def write(self, data: bytes) -> None:
        """Write complete lines. On a full disk they are dropped; the next write terminates a partially written line."""
        left = memoryview(b"\n" + data if self.is_torn else data)
        try:
            while left:
                written = os.write(self.file, left)
                left, self.is_torn = left[written:], written < len(left)
                self.size += written
        except OSError:  # a full disk must not stop the container
            return
        if self.size >= SEGMENT_BYTES:
            self.next()

    def next(self) -> None:
        try:
            file = self.open(f"{self.path}.{self.number + 1}")
        except OSError:  # disk full: continue with the current file
            return
        os.close(self.file)
        self.file, self.size, self.number = file, 0, self.number + 1
        oldest = self.number - SEGMENTS
        if oldest >= 0:
            try:
                os.unlink(f"{self.path}.{oldest}" if oldest else self.path)
            except OSError:  # the next one is removed in its turn
                return

    def open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def write(folder: str, name: str, content: dict) -> None:  # type: ignore[type-arg]
    """Write atomically. On a full disk the spare file is used, then it is tried again: the exit code must not be lost."""
    path, data = os.path.join(folder, name), json.dumps(content).encode()
    while True:
        for file, flags in ((path + ".new", os.O_CREAT | os.O_TRUNC), (os.path.join(folder, SPARE), 0)):
            try:
                rewrite(file, flags, data)
                os.replace(file, path)
                return
            except FileNotFoundError:  # the pod's folder was removed, or the spare file is used up
                if not os.path.isdir(folder):
                    return
            except OSError:  # such as a full disk
                continue
        time.sleep(1)


def keep_spare(folder: str) -> None:
    """Allocate the spare file; without space the run has none."""
    try:
        rewrite(os.path.join(folder, SPARE), os.O_CREAT, bytes(SPARE_BYTES))
    except OSError:  # the exit is then recorded as soon as there is space
        return


def drop_spare(folder: str) -> None:
    """Remove the spare file, unless it was used."""
    try:
        os.unlink(os.path.join(folder, SPARE))
    except OSError:  # used up
        return


def rewrite(path: str, flags: int, data: bytes) -> None:
    """Write a file from its beginning: what is allocated is used, and needs no space. Raises OSError."""
    file, written = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600), 0
    try:
        while written < len(data):
            written += os.pwrite(file, data[written:], written)
        os.ftruncate(file, written)
    finally:
        os.close(file)


def record(folder: str, name: str, content: dict, spec: dict) -> None:  # type: ignore[type-arg]
    """Write a file and notify the agent, which reads all files when it starts: a missing reader is no error."""
    write(folder, name, content)
    if "notify" not in spec:
        return  # the agent polls
    try:
        pipe = os.open(spec["notify"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return  # no agent is running, or it has no pipe any more
        raise
    try:
        os.write(pipe, spec["notify_name"].encode() + b"\n")
    except (BlockingIOError, BrokenPipeError):  # full, so that the agent looks anyway; or it ends
        return
    finally:
        os.close(pipe)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
