"""Runs the probes of one run of a container when they are due, in the node's threads, and keeps what they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor

from trainwright.api.objects import Obj
from trainwright.controlplane.node.handlers import Outcome, Target, run_handler
from trainwright.controlplane.node.lifecycle.probes import (
    READINESS,
    STARTUP,
    Health,
    Probe,
    ProbeState,
    after_result,
    due,
    first_state,
    health,
    next_time,
    probes_of,
)

Report = Callable[[str, Outcome], None]
"""Called with the kind of the probe and what came of it."""


class ProbeRunner:
    """The probes of one run. `changed` is called after each result, `report` with those worth an event, in the threads of `pool`."""

    def __init__(
        self,
        container: Obj,
        target: Target,
        pool: Executor,
        *,
        started_at: float,
        is_restart: bool,
        changed: Callable[[], None],
        report: Report,
    ):
        self._states = {probe.kind: first_state(probe, started_at, is_restart=is_restart) for probe in probes_of(container)}
        self._target, self._pool, self._changed, self._report = target, pool, changed, report
        self._lock = threading.Lock()
        self._running: set[str] = set()

    def resume(self, *, was_started: bool, was_ready: bool) -> None:
        """Start from what was published: the run was probed by an earlier life of this node."""
        with self._lock:
            for kind, verdict in ((STARTUP, was_started), (READINESS, was_ready)):
                if kind in self._states and verdict:
                    self._states[kind] = self._passed(self._states[kind])

    def health(self) -> Health:
        """What the probes say so far."""
        with self._lock:
            return health(self._states)

    def advance(self, now: float) -> float | None:
        """Start the probes that are due at `now` (seconds since the epoch), and return when the next one is."""
        with self._lock:
            return self._advance(self._states, now)

    def advance_stopping(self, now: float) -> float | None:
        """As `advance`, for a container that is being stopped: whether it is ready is still of interest.

        Source: StopLivenessAndStartup of the kubelet.
        """
        with self._lock:
            return self._advance({kind: state for kind, state in self._states.items() if kind == READINESS}, now)

    def _advance(self, states: dict[str, ProbeState], now: float) -> float | None:
        for probe in due(states, now):
            if probe.kind not in self._running:
                self._running.add(probe.kind)
                self._pool.submit(self._run, probe)
        waiting = {kind: state for kind, state in states.items() if kind not in self._running}
        if STARTUP in states and STARTUP not in waiting:
            return None
        return next_time(waiting) if waiting else None

    def _run(self, probe: Probe) -> None:
        outcome = run_handler(probe.spec, self._target, probe.timeout)
        if self._target.stop.is_set():
            return
        with self._lock:
            self._running.discard(probe.kind)
            self._states[probe.kind] = after_result(self._states[probe.kind], outcome.is_success, time.time())
        if not outcome.is_success or outcome.is_warning:
            self._report(probe.kind, outcome)
        self._changed()

    @staticmethod
    def _passed(state: ProbeState) -> ProbeState:
        return ProbeState(state.probe, verdict=True, last=True, in_a_row=state.probe.successes, next_at=state.next_at)
