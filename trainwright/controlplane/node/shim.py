"""The parent of one container's process: starts it, waits for it, writes down how it ended. Run as a script, imports nothing of ours.

It outlives the node agent, so that an exit code is never lost and a running container can be adopted after a crash.
Usage: shim.py FOLDER LOCK_FD. FOLDER/spec.json (0600, removed once read) holds argv, env, cwd and log. The lock that
LOCK_FD holds says, for as long as it is held, that this process lives. Writes state.json when started, exit.json when ended,
and in between what the container prints: to `log`, then `log.1`, `log.2` ..., each line after its time and stream as container
runtimes write it: `2026-01-02T03:04:05.000000006Z stdout F text`, with P for F where the line goes on in the next entry.
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
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READ_BYTES = 64 * 1024
LINE_BYTES = 16 * 1024
"""A longer line without an end is written in parts, as container runtimes do."""
PARTIAL_SECONDS = 0.1
"""How long the beginning of a line waits for its end, before it is shown without."""
SEGMENT_BYTES = 10 * 1024 * 1024
SEGMENTS = 5
"""A kubelet's bounds: when a file of the log is full there is a next one, and the sixth takes the place of the first."""


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
    streams = {b"stdout": os.pipe(), b"stderr": os.pipe()}
    pid = os.fork()
    if pid == 0:
        become(spec, *(writer for _, writer in streams.values()))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    for _, writer in streams.values():
        os.close(writer)
    output = Output(spec["log"], {reader: name for name, (reader, _) in streams.items()})
    write(folder, "state.json", {"pid": pid, "startedAt": time.time()})
    status = wait_for(pid)
    end_descendants()
    output.finish()
    code = os.waitstatus_to_exitcode(status)
    ended = {"code": code if code >= 0 else 128 - code, "signal": -code if code < 0 else 0, "finishedAt": time.time()}
    write(folder, "exit.json", ended)


def become(spec: dict, stdout: int, stderr: int) -> None:  # type: ignore[type-arg]
    """In the child: turn into the container's process; never returns."""
    for number in (*ENDING, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
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


class Output:
    """What the container prints, on its way from the pipes to the log; in a thread of its own until `finish`."""

    def __init__(self, path: str, streams: dict):  # type: ignore[type-arg]
        self.log = Segments(path)
        self.streams = streams
        self.begun = dict.fromkeys(streams, b"")  # lines whose end has not come yet
        self.due = dict.fromkeys(streams, 0.0)  # when they are shown without
        self.ended, self.end = os.pipe()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def finish(self) -> None:
        """Once nobody prints any more: write what is left in the pipes."""
        os.close(self.end)
        self.thread.join()

    def run(self) -> None:
        poll = select.poll()
        for source in (*self.streams, self.ended):
            poll.register(source, select.POLLIN)
        last = False
        while True:
            waits = last or any(self.begun.values())
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
            for source, due in self.due.items():
                if last or time.monotonic() >= due:
                    self.show_begun(source)

    def take(self, source: int, data: bytes) -> None:
        lines, newline, rest = (self.begun[source] + data).rpartition(b"\n")
        if newline:
            head = self.head(source, b"F")
            self.log.write(head + lines.replace(b"\n", b"\n" + head) + b"\n")
        if newline or not self.begun[source]:
            self.due[source] = time.monotonic() + PARTIAL_SECONDS
        self.begun[source] = rest
        if len(rest) > LINE_BYTES:
            self.show_begun(source)

    def show_begun(self, source: int) -> None:
        if self.begun[source]:
            self.log.write(self.head(source, b"P") + self.begun[source] + b"\n")
            self.begun[source] = b""

    def head(self, source: int, tag: bytes) -> bytes:
        stream: bytes = self.streams[source]
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds:09}Z "
        return stamp.encode() + stream + b" " + tag + b" "


class Segments:
    """The files of a log: PATH, PATH.1, PATH.2 ..., of which the last few are kept."""

    def __init__(self, path: str):
        self.path, self.number, self.torn = path, 0, False
        self.file = self.open(path)
        self.size = os.fstat(self.file).st_size

    def write(self, data: bytes) -> None:
        """Write whole lines. On a full disk they are lost, and the container goes on; a torn line is ended by the next write."""
        left = memoryview(b"\n" + data if self.torn else data)
        try:
            while left:
                written = os.write(self.file, left)
                left, self.torn = left[written:], written < len(left)
                self.size += written
        except OSError:
            return
        if self.size >= SEGMENT_BYTES:
            self.next()

    def next(self) -> None:
        try:
            file = self.open(f"{self.path}.{self.number + 1}")
        except OSError:  # no room: this one grows on
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
