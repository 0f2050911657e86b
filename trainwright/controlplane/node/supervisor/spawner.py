"""Forks the supervisors of containers, with all that they need loaded once: a start then costs no interpreter, and memory is shared.

Standard library and small modules only. Usage: spawner.py SOCKET_FD, a socket of packets. Each packet is a run's folder with the
descriptor of its lock; the answer is the id of the supervisor's process, or E and the number of the error. A process with a single
thread, which ends with the other end of its socket; the supervisors do not.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

if __name__ == "__main__":  # started with -P: the package is not in the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from trainwright.controlplane.node.isolation import enter, host_folders
from trainwright.controlplane.node.supervisor import supervise
from trainwright.controlplane.node.supervisor.process_start import RunsHere
from trainwright.controlplane.node.supervisor.start_command import set_title

FAILED = b"E"
LONGEST_REQUEST = 8192
"""Bytes; the longest path has 4096."""
PRELOADED = (enter, host_folders)
"""What a supervisor imports only for an isolated container."""


def serve(connection: socket.socket) -> None:
    """Fork a supervisor for each request, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    gc.collect()
    gc.freeze()  # so that the supervisors' own collections do not copy shared pages
    while True:
        folder, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 1)
        if not folder:
            return  # the node has ended
        answer = fork_supervisor(connection, folder, descriptors[0])
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):  # the node has ended
            return


def fork_supervisor(connection: socket.socket, folder: bytes, lock: int, *, runs_here: bool = False) -> bytes:
    """Fork the supervisor of a run, and return the answer to its request. With `runs_here`, see process_start.py."""
    try:
        pid = os.fork()
    except OSError as error:  # no memory, or no process id: reported to the node
        answer = FAILED + b"%d" % (error.errno or 0)
    else:
        if pid == 0:
            connection.close()
            become_supervisor(os.fsdecode(folder), lock, runs_here=runs_here)
        answer = b"%d" % pid
    os.close(lock)
    return answer


def become_supervisor(folder: str, lock: int, *, runs_here: bool) -> None:
    """In the forked process: become a run's supervisor; never returns."""
    code: int | None = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        set_title([sys.executable, "-P", supervise.__file__, folder, str(lock)])
        supervise.main(folder, lock, runs_here=runs_here)
        code = 0
    except RunsHere:  # not the supervisor, but the process that it has forked
        code = None
        raise
    finally:
        if code is not None:
            os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
