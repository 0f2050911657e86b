"""Repeats the steps of one pod in a thread: at the latest when a step asks for it, on news, and again after an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of, namespace_of

IDLE_SECONDS = 5.0
"""Between looks at a pod of which nothing is heard: a supervisor that was killed says nothing."""
RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


class StepLoop:
    """Runs from `start` until a step returns None and no news has arrived. A new loop handles later news.

    Args:
        pod: Names the thread and the lines of the log.
        step: Returns in how many seconds to look again at the latest, or None if nothing is left to do.
        is_quiet: Whether only news can change anything, asked after an idle wait.
        on_end: Called in the thread when the loop has ended.
        idle_seconds: The longest wait; it is prolonged while the pod is quiet.
        retry_seconds: Wait after a step that has failed.
    """

    def __init__(
        self,
        pod: Obj,
        step: Callable[[], float | None],
        is_quiet: Callable[[], bool],
        on_end: Callable[[], None],
        *,
        idle_seconds: float = IDLE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ):
        self._names = (namespace_of(pod), name_of(pod))
        self._step, self._is_quiet, self._on_end = step, is_quiet, on_end
        self._idle_seconds, self._retry_seconds = idle_seconds, retry_seconds
        self._changed = threading.Event()
        self._handover = threading.Lock()
        self._is_retired = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod-{name_of(pod)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, take: Callable[[], None]) -> bool:
        """Call `take`, which takes news of the pod, and wake the loop. Returns False if the loop has ended: nothing is taken then."""
        with self._handover:
            if self._is_retired:
                return False
            take()
            self._changed.set()
            return True

    def wake(self) -> None:
        """Take a step: something has happened."""
        self._changed.set()

    def stop(self) -> None:
        """End the loop after the current step."""
        self._stopping.set()
        self._changed.set()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the loop. One that is not started yet, and was told to stop, does nothing when it is."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                wait = self._guarded_step()
                if wait is not None:
                    self._sleep(wait)
                elif self._retire():
                    return
        finally:
            self._is_retired = True
            self._on_end()

    def _guarded_step(self) -> float | None:
        """Do a step. What goes wrong is tried again: a pod whose worker has ended would be stuck."""
        try:
            return self._step()
        except (ApiError, OSError) as error:
            log.warning("pod step failed pod=%s/%s error=%s", *self._names, error)
        except Exception:
            log.exception("pod step failed pod=%s/%s", *self._names)
        return self._retry_seconds

    def _sleep(self, seconds: float) -> None:
        """Wait for news of the pod, at most so long; longer if nothing but news can change anything."""
        while not self._changed.wait(seconds) and seconds == self._idle_seconds and self._is_quiet():
            pass

    def _retire(self) -> bool:
        """End the work on the pod, unless there is news of it."""
        with self._handover:
            self._is_retired = not self._changed.is_set()
            return self._is_retired
