"""Does what the node must do from time to time by itself, in a thread of its own: an error of one task keeps no other one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from trainwright.controlplane.life_signs import LifeSign

EVERY_SECONDS = 5.0
log = logging.getLogger(__name__)


class Upkeep:
    """Calls all `tasks` in turn, until `stop` is set."""

    def __init__(self, tasks: Sequence[Callable[[], None]], stop: threading.Event):
        self._tasks, self._stop = tuple(tasks), stop
        self._thread = threading.Thread(target=self._run, name="node-upkeep", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> None:
        self._thread.start()

    def problems(self) -> list[str]:
        """Why nothing is kept up: the thread has ended, or does not get done with a task."""
        return self._sign.problems()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            with self._sign.turn():
                for task in self._tasks:
                    self._do(task)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:  # such as a full disk: it is done again after a while
            log.exception("event=upkeep_failed task=%s", getattr(task, "__qualname__", task))
