"""Stands in for sshd as the main process of an MPI job's worker, and runs no commands: the node does, see `remote_shell.py`.

Usage: sshd.py [OPTIONS OF SSHD]. Its port is open for readiness probes, at TRAINWRIGHT_POD_IP only, since pods share the machine's
interfaces. As process 1 of its container it waits for processes that have lost their parents. Ends with 0 on SIGTERM. Standard
library only.
"""

import os
import signal

if __name__ == "__main__":  # at once: process 1 ignores a signal without a handler
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(_number, lambda *_: os._exit(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them

import contextlib
import getopt
import socket
import sys

OPTIONS = "46DdeGiqTtVb:C:c:E:f:g:h:k:o:p:u:"
"""Those of sshd(8), of which -p counts."""
PORT = "2222"
"""The port in the configuration of Trainer's images."""


def main() -> None:
    address, port = os.environ["TRAINWRIGHT_POD_IP"], PORT
    try:
        port = dict(getopt.getopt(sys.argv[1:], OPTIONS)[0]).get("-p", PORT)
        listener = socket.create_server((address, int(port)))
    except (getopt.GetoptError, ValueError, OverflowError, OSError) as error:
        sys.exit(f"sshd: cannot listen on {address}:{port}: {error}")
    while True:
        with contextlib.suppress(ConnectionError):
            listener.accept()[0].close()


if __name__ == "__main__":
    main()
