"""Stops one run of a container: its preStop hook, then SIGTERM, then SIGKILL when the grace is over."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.handlers import Outcome

MINIMUM_SECONDS = 2.0
"""What a container has after its preStop hook in any case. Source: minimumGracePeriodInSeconds of the kubelet."""


class ContainerStop:
    """Call `advance` whenever time has passed or something has changed. Times are those of one monotonic clock, in seconds.

    `hook` is the running preStop hook, if the container has one; `abandon` tells it that its time is over.
    """

    def __init__(self, run: ContainerRun, grace: float, now: float, hook: Future[Outcome] | None, abandon: threading.Event):
        self._run, self._hook, self._abandon = run, hook, abandon
        self._kill_at = now + max(grace, MINIMUM_SECONDS)
        self._is_told = self._is_killed = False
        self.failed_hook: Outcome | None = None
        """How the preStop hook failed, once it has."""

    def shorten(self, grace: float, now: float) -> None:
        """Kill sooner, if `grace` from now on is sooner: the pod was deleted again, with less grace."""
        self._kill_at = min(self._kill_at, now + max(grace, MINIMUM_SECONDS))

    def advance(self, now: float) -> float | None:
        """Do what is due, and return when to come again; None after SIGKILL."""
        if self._hook is not None and not self._is_told:
            if not self._hook.done() and now < self._kill_at:
                return self._kill_at
            if self._hook.done():
                outcome = self._hook.result()
                self.failed_hook = None if outcome.is_success else outcome
            self._abandon.set()
            self._kill_at = max(self._kill_at, now + MINIMUM_SECONDS)
        if not self._is_told:
            self._is_told = True
            self._run.signal(signal.SIGTERM)
        if now < self._kill_at:
            return self._kill_at
        if not self._is_killed:
            self._is_killed = True
            self._run.signal(signal.SIGKILL)
        return None
