"""Stops one run of a container: its preStop hook, then SIGTERM when it is its turn, then SIGKILL when the grace is over."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.handlers import Outcome

MINIMUM_SECONDS = 2.0
"""What a container has after its preStop hook and the wait for its turn. Source: minimumGracePeriodInSeconds of the kubelet."""


class ContainerStop:
    """Call `advance` whenever time has passed or something has changed. Times are those of one monotonic clock, in seconds.

    `hook` is the running preStop hook, if the container has one; `abandon` tells it that its time is over. One that `waits` is not
    signalled before `take_turn`, but for the end of its grace.
    """

    def __init__(
        self,
        run: ContainerRun,
        grace: float,
        now: float,
        hook: Future[Outcome] | None,
        abandon: threading.Event,
        *,
        waits: bool = False,
    ):
        self._run, self._hook, self._abandon, self._waits = run, hook, abandon, waits
        self._kill_at = now + max(grace, MINIMUM_SECONDS)
        self._is_told = self._is_killed = False
        self.failed_hook: Outcome | None = None
        """How the preStop hook failed, once it has."""

    def shorten(self, grace: float, now: float) -> None:
        """Kill sooner, if `grace` from now on is sooner: the pod was deleted again, with less grace."""
        self._kill_at = min(self._kill_at, now + max(grace, MINIMUM_SECONDS))

    def take_turn(self) -> None:
        """The containers that must end first have ended."""
        self._waits = False

    def advance(self, now: float) -> float | None:
        """Do what is due, and return when to come again; None after SIGKILL."""
        if not self._is_told:
            if (self._is_hook_running() or self._waits) and now < self._kill_at:
                return self._kill_at
            self._abandon.set()
            self._kill_at = max(self._kill_at, now + MINIMUM_SECONDS)
            self._is_told = True
            self._run.signal(signal.SIGTERM)
        if now < self._kill_at:
            return self._kill_at
        if not self._is_killed:
            self._is_killed = True
            self._run.signal(signal.SIGKILL)
        return None

    def _is_hook_running(self) -> bool:
        if self._hook is None or not self._hook.done():
            return self._hook is not None
        outcome, self._hook = self._hook.result(), None
        self.failed_hook = None if outcome.is_success else outcome
        return False
