"""Wakes the worker of a pod when the supervisor of one of its containers has written its state: nobody needs to poll.

Supervisors write the pod's UID to a FIFO. What is written while no node listens is lost; a node that starts reads all files.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from trainwright.controlplane.life_signs import LifeSign

_READ_BYTES = 64 * 1024
log = logging.getLogger(__name__)


class Changes:
    """Listens on the FIFO at `path`, and calls `wake` with each UID, in a thread of its own."""

    def __init__(self, path: Path, wake: Callable[[str], None]):
        self.path = path
        self._wake = wake
        self._file = -1
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="pod-news", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> bool:
        """Start listening. Returns False where the file system has no FIFOs: workers then have to poll."""
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISFIFO(self.path.lstat().st_mode):
                    self.path.unlink()
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path, 0o600)
            self._file = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # O_RDWR: no end of file without writers
        except OSError as error:
            log.warning("event=no_fifo path=%s error=%s", self.path, errno.errorcode.get(error.errno or 0))
            return False
        self._thread.start()
        return True

    def problems(self) -> list[str]:
        """Why nobody listens; nothing where there are no FIFOs."""
        return self._sign.problems() if self._file >= 0 else []

    def stop(self) -> None:
        """Stop listening."""
        os.close(self._end)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._ended)
        if self._file >= 0:
            os.close(self._file)

    def _run(self) -> None:
        rest = b""
        poll = select.poll()  # select() takes no descriptors above 1023
        poll.register(self._file, select.POLLIN)
        poll.register(self._ended, select.POLLHUP)
        while True:
            if any(file == self._ended for file, _ in poll.poll()):
                return
            with self._sign.turn():
                *lines, rest = (rest + os.read(self._file, _READ_BYTES)).split(b"\n")
                for uid in dict.fromkeys(lines):
                    self._wake(uid.decode("ascii", "replace"))
