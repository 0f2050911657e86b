"""The parent of a container's process: starts it, waits for it, records its exit. A script that imports nothing from the package.

It outlives the node agent, so that exit codes are not lost and running containers can be adopted after a crash.
Usage: shim.py FOLDER LOCK_FD. FOLDER/spec.json (0600, removed after reading) has argv, env, cwd and log. The lock on LOCK_FD is
held while this process is running. Writes state.json on start and exit.json on exit. Output is written to `log`, then `log.1`,
`log.2` ..., in the CRI log format: `2026-01-02T03:04:05.000000006Z stdout F text`, with P instead of F for a partial line.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
COMMAND_NOT_FOUND = 127
TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READ_BYTES = 64 * 1024
LINE_BYTES = 16 * 1024
"""Longer lines are split, like in container runtimes."""
PARTIAL_SECONDS = 0.1
"""How long a partial line is buffered before it is written."""
SEGMENT_BYTES = 10 * 1024 * 1024
SEGMENTS = 5
"""A kubelet's defaults: a full log file is followed by the next one, and the oldest of more than five is removed."""


def main() -> None:
    folder, lock = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(lock, False)
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # adopt orphans of the container, to kill them with it
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
        spec = json.load(file)
    os.unlink(os.path.join(folder, "spec.json"))
    # The child inherits ignored signals: block them until it has reset its handlers, so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
    streams = {b"stdout": os.pipe(), b"stderr": os.pipe()}
    pid = os.fork()
    if pid == 0:
        exec_container_process(spec, *(writer for _, writer in streams.values()))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)
    for _, writer in streams.values():
        os.close(writer)
    output = Output(spec["log"], {reader: name for name, (reader, _) in streams.items()})
    write(folder, "state.json", {"pid": pid, "startedAt": time.time()})
    status = wait_for(pid)
    kill_descendants()
    output.finish()
    code = os.waitstatus_to_exitcode(status)
    ended = {"code": code if code >= 0 else 128 - code, "signal": -code if code < 0 else 0, "finishedAt": time.time()}
    write(folder, "exit.json", ended)


def exec_container_process(spec: dict, stdout: int, stderr: int) -> None:  # type: ignore[type-arg]
    """In the child: exec the container's command; never returns."""
    for number in (*TERMINATION_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)
    os.umask(0o077)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    try:
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606  (an argument list, no shell)
    except OSError as error:
        os.write(2, f"cannot start {spec['argv'][0]!r} in {spec['cwd']!r}: {error.strerror}\n".encode())
    os._exit(COMMAND_NOT_FOUND)


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


class Output:
    """Copies the container's output from pipes to the log, in its own thread until `finish`."""

    def __init__(self, path: str, streams: dict):  # type: ignore[type-arg]
        self.log = Segments(path)
        self.streams = streams
        self.partial = dict.fromkeys(streams, b"")  # incomplete lines
        self.flush_at = dict.fromkeys(streams, 0.0)  # when incomplete lines are written
        self.ended, self.end = os.pipe()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def finish(self) -> None:
        """Write the remaining data in the pipes, after all processes have exited."""
        os.close(self.end)
        self.thread.join()

    def run(self) -> None:
        poll = select.poll()
        for source in (*self.streams, self.ended):
            poll.register(source, select.POLLIN)
        last = False
        while True:
            waits = last or any(self.partial.values())
            ready = [source for source, _ in poll.poll(0 if last else PARTIAL_SECONDS * 1000 if waits else None)]
            if self.ended in ready:
                last = True
                poll.unregister(self.ended)
                ready.remove(self.ended)
            elif last and not ready:
                return
            for source in ready:
                data = os.read(source, READ_BYTES)
                if data:
                    self.take(source, data)
                else:
                    poll.unregister(source)
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
        except OSError:
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
        with contextlib.suppress(OSError):
            if oldest >= 0:
                os.unlink(f"{self.path}.{oldest}" if oldest else self.path)

    def open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def write(folder: str, name: str, content: dict) -> None:  # type: ignore[type-arg]
    """Write atomically. Retries on a full disk, because the exit code must not be lost."""
    path = os.path.join(folder, name)
    while True:
        try:
            with open(path + ".new", "w", encoding="utf-8", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
                json.dump(content, file)
            os.replace(path + ".new", path)
            return
        except FileNotFoundError:  # the pod's folder was removed
            return
        except OSError:
            time.sleep(1)


if __name__ == "__main__":
    main()
