"""Runs a command for a connection of `remote_shell.py`, and ends it when the client disconnects.

Usage: session.py CONNECTION MARK COMMAND [WORD ...]. CONNECTION is a file descriptor. MARK is a variable, `NAME=VALUE`, of all
processes that the command starts. This is a separate process so that commands outlive a crash of the control plane. Standard
library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys

if __name__ == "__main__":  # started with -P: the package is not in the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from trainwright.controlplane.node.supervisor.child_command import kill_processes_with, signal_child

GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL after the client has disconnected."""


def main(descriptor: str, mark: str, *argv: str) -> None:
    connection = socket.socket(fileno=int(descriptor))
    connection.setblocking(True)
    connection.set_inheritable(False)
    process = subprocess.Popen(argv, close_fds=False, start_new_session=True)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the command alone holds the client's
        os.dup2(null, stream)
    ended, poll = os.pidfd_open(process.pid), select.poll()
    for file in (ended, connection.fileno()):
        poll.register(file, select.POLLIN)
    if ended in dict(poll.poll()):
        code = process.wait()
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps({"exit": code if code >= 0 else 128 - code}).encode() + b"\n")
        return
    signal_child(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    signal_child(process.pid, signal.SIGKILL)
    kill_processes_with(mark)  # also those in other groups and sessions


if __name__ == "__main__":
    main(*sys.argv[1:])
