"""Replaces itself by the command of an exec session. Runs as a script, and imports nothing from the package.

Usage: exec_child.py FOLDER TERMINAL COMMAND ...: starts in FOLDER, with standard input as controlling terminal if TERMINAL is 1.
Its parent has made it a session leader; it is killed when its parent exits.
"""

import ctypes
import fcntl
import os
import signal
import sys
import termios

PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def main() -> None:
    folder, terminal, *argv = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if terminal == "1":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python has changed their dispositions
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    try:
        os.chdir(folder)
        os.execvp(argv[0], argv)  # noqa: S606  (an argument list, no shell)
    except OSError as error:
        os.write(2, f"cannot start {argv[0]!r} in {folder!r}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main()
