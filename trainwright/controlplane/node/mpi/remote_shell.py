"""Stands in for ssh when mpirun starts its daemons: asks the node to run a command in another pod of the job.

Usage: remote_shell.py [OPTIONS OF SSH] HOST COMMAND [WORD ...]. The command gets this program's standard input, output and errors, and
ends when this program does. The exit code is the command's; 255 is this program's failure, as with ssh. Standard library only.

The node listens at SOCKET, which only the pods of the job have. The client sends a line of JSON with its three streams,
`{"host": HOST, "command": [WORD, ...]}`; the answer is `{"exit": CODE}` or `{"error": TEXT}`.
"""

from __future__ import annotations

import getopt
import json
import os
import pwd
import re
import signal
import socket
import sys
import time

FOLDER = "/run/trainwright-mpi"
SOCKET = f"{FOLDER}/socket"
FAILED = 255
_OPTIONS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"
"""Those of ssh(1). All but -n and ConnectionAttempts are ignored, as hosts are pods."""
_SHELLS = {"bash", "csh", "ksh", "sh", "tcsh", "zsh"}
"""Shells whose syntax mpirun knows."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for descriptor in (0, 1, 2):  # the connection would get the number of a closed one
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        options, words = getopt.getopt(sys.argv[1:], _OPTIONS)
    except getopt.GetoptError as error:
        return fail(str(error))
    if len(words) < 2:
        return fail("expected a host and a command: there are no terminals")
    if ("-n", "") in options:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    host = words[0].rpartition("@")[2]
    request = {"host": host, "command": [shell_of_user(), "-c", " ".join(words[1:])]}
    for left in reversed(range(attempts(options))):
        answer = ask(request)
        if "exit" in answer:
            return int(answer["exit"])
        if left:  # the pod may not have started yet
            time.sleep(1)
    return fail(f"{host}: {answer['error']}")


def attempts(options: list[tuple[str, str]]) -> int:
    """Return the value of the option ConnectionAttempts, which Trainer sets to 10, else 1."""
    settings = (re.fullmatch(r"ConnectionAttempts[\s=]+([1-9]\d{0,3})", value.strip(), re.IGNORECASE) for _, value in options)
    return next((int(found[1]) for found in settings if found), 1)


def shell_of_user() -> str:
    """Return the login shell, in whose syntax mpirun writes its commands."""
    try:
        shell = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:  # the image does not know the user
        return "/bin/sh"
    return shell if os.path.basename(shell) in _SHELLS and os.access(shell, os.X_OK) else "/bin/sh"


def ask(request: dict, path: str = SOCKET) -> dict:  # type: ignore[type-arg]
    """Run the command and return the answer of the node."""
    line = json.dumps(request).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            try:
                sent = socket.send_fds(connection, [line], [0, 1, 2])
                connection.sendall(line[sent:])
            except (BrokenPipeError, ConnectionResetError):  # refused already: the answer is there
                pass
            with connection.makefile("rb") as answers:
                return json.loads(answers.readline())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return {"error": "pods of an MPI job find each other only where they are isolated, see `trainwright status`"}
    except OSError as error:
        return {"error": f"the node does not answer: {error}"}
    except ValueError:
        return {"error": "the node ended the connection before the command ended"}


def fail(problem: str) -> int:
    print(f"remote shell: {problem}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
