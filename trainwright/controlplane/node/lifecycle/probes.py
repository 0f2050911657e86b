"""When a container's probes run, and what their results mean: thresholds, delays, and which probe waits for which. Pure.

Source: the kubelet's prober worker. Readiness counts as failed until it succeeds, liveness as passed until it fails; neither runs
before the startup probe has passed. After a failed startup or liveness probe the run is stopped, and probed no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj

STARTUP, LIVENESS, READINESS = "startup", "liveness", "readiness"
KINDS = (STARTUP, LIVENESS, READINESS)
_PERIOD_SECONDS, _TIMEOUT_SECONDS, _FAILURES = 10.0, 1.0, 3


@dataclass(frozen=True)
class Probe:
    """One probe of a container. `spec` is that of the API, with its handler. Times are in seconds."""

    kind: str
    spec: Obj

    @property
    def period(self) -> float:
        return float(self.spec.get("periodSeconds") or _PERIOD_SECONDS)

    @property
    def timeout(self) -> float:
        return float(self.spec.get("timeoutSeconds") or _TIMEOUT_SECONDS)

    @property
    def delay(self) -> float:
        return float(self.spec.get("initialDelaySeconds") or 0)

    @property
    def failures(self) -> int:
        return int(self.spec.get("failureThreshold") or _FAILURES)

    @property
    def successes(self) -> int:
        return int(self.spec.get("successThreshold") or 1)


@dataclass(frozen=True)
class ProbeState:
    """The results of one probe for one run: the verdict so far (None: none yet) and how often the same result came in a row."""

    probe: Probe
    verdict: bool | None = None
    last: bool | None = None
    in_a_row: int = 0
    next_at: float = 0.0


def probes_of(container: Obj) -> Iterator[Probe]:
    """Yield the probes of a container."""
    for kind in KINDS:
        if spec := container.get(f"{kind}Probe"):
            yield Probe(kind, spec)


def first_state(probe: Probe, started_at: float, *, is_restart: bool = False) -> ProbeState:
    """Return the state of a probe for a run that started at this time (seconds since the epoch).

    The first run is probed at once, a later one after a period: a kubelet's ticker goes on over restarts. But for readiness: the
    kubelet probes it at once whenever a container that runs is not ready.
    """
    wait = probe.period if is_restart and probe.kind != READINESS else 0.0
    return ProbeState(probe, next_at=started_at + max(probe.delay, wait))


def after_result(state: ProbeState, is_success: bool | None, now: float) -> ProbeState:
    """Return the state after a result at the time `now`; None is an error of the prober itself, which decides nothing.

    The next one is due when a ticker that started with the first one ticks again: a slow probe does not put the others off.
    """
    tick = min(state.next_at, now)  # a clock that jumped back does not put it off either
    following = replace(state, next_at=tick + ((now - tick) // state.probe.period + 1) * state.probe.period)
    if is_success is None:
        return following  # retried at the next tick
    count = state.in_a_row + 1 if state.last is is_success else 1
    threshold = state.probe.successes if is_success else state.probe.failures
    verdict = is_success if count >= threshold else state.verdict
    return replace(following, last=is_success, in_a_row=count, verdict=verdict)


@dataclass(frozen=True)
class Health:
    """What the probes of a run say together. `failed` names the probe for which the run must be stopped, or is empty."""

    is_startup_passed: bool
    is_ready: bool
    failed: str = ""


def health(states: dict[str, ProbeState]) -> Health:
    """Return the health of a run from the states of its probes by kind."""
    startup, liveness, readiness = (states.get(kind) for kind in KINDS)
    passed = startup is None or startup.verdict is True
    failed = next((kind for kind, state in ((STARTUP, startup), (LIVENESS, liveness)) if state and state.verdict is False), "")
    return Health(passed, passed and (readiness is None or readiness.verdict is True), failed)


def due(states: dict[str, ProbeState], now: float) -> list[Probe]:
    """Return the probes whose time has come. The others wait for the startup probe; none runs after a failure that stops the run."""
    return [state.probe for state in _active(states) if state.next_at <= now]


def next_time(states: dict[str, ProbeState]) -> float | None:
    """Return when the next probe is due, in seconds since the epoch, or None."""
    return min((state.next_at for state in _active(states)), default=None)


def _active(states: dict[str, ProbeState]) -> list[ProbeState]:
    current = health(states)
    if current.failed:
        return []  # the run is stopped
    if not current.is_startup_passed:
        return [states[STARTUP]]
    return [state for kind, state in states.items() if kind != STARTUP]
