"""Prepares environments while pods wait for them: each in a thread, tried again with growing pauses after a failure."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trainwright.backoff import Backoff
from trainwright.controlplane.environments.definition import EnvironmentDefinition
from trainwright.controlplane.environments.installer import Stopped
from trainwright.controlplane.environments.store import EnvironmentFailed, EnvironmentStore, Prepared

_BACKOFF = Backoff(10.0, 300.0, jitter=0)
"""A kubelet's, for images that cannot be pulled."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preparing:
    """An environment is being prepared. `message` says how far that is."""

    message: str


@dataclass(frozen=True)
class Failed:
    """An environment could not be prepared, `failures` times in a row."""

    message: str
    failures: int
    retry_at: float
    """By the monotonic clock."""


class Preparations:
    """The environments of one node. Thread-safe."""

    def __init__(self, store: EnvironmentStore):
        self._store = store
        self._states: dict[str, Preparing | Failed] = {}
        """By the environment's folder; those that are ready are not in it."""
        self._renewed: set[tuple[Path, str]] = set()
        """Folders and times of creation of environments whose shims are those of this package."""
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def look(self, definition: EnvironmentDefinition) -> Prepared | Preparing | Failed:
        """Return the state of an environment; begins to prepare it unless it is ready, or has just failed."""
        if (ready := self._store.find(definition)) is not None:
            if (ready.path, ready.created) not in self._renewed:
                try:
                    self._store.renew_shims(ready)
                    self._renewed.add((ready.path, ready.created))
                except OSError as error:  # those of the version that made it are there
                    log.warning("event=shims_not_renewed name=%s path=%s error=%s", ready.name, ready.path, error)
            return ready
        place = str(self._store.place(definition))
        with self._lock:
            state = self._states.get(place)
            if isinstance(state, Preparing) or (isinstance(state, Failed) and time.monotonic() < state.retry_at):
                return state  # under way, or its pause is not over
            failures = state.failures if state is not None else 0
            self._states[place] = begun = Preparing(f"preparing the environment {definition.name}")
            arguments = (definition, place, failures)
            threading.Thread(target=self._prepare, args=arguments, name=f"environment-{definition.name}", daemon=True).start()
        return begun

    def is_ready(self, definition: EnvironmentDefinition) -> bool:
        """Whether an environment is ready; begins nothing."""
        return self._store.find(definition) is not None

    def stop(self) -> None:
        """End what is being prepared; it is begun again when it is needed again."""
        self._stop.set()

    def _prepare(self, definition: EnvironmentDefinition, place: str, failures: int) -> None:
        def report(message: str) -> None:
            with self._lock:
                self._states[place] = Preparing(f"preparing the environment {definition.name}: {message}")

        outcome: Failed | None = None
        try:
            self._store.prepare(definition, report, self._stop)
        except Stopped:  # the node ends: the next one prepares it again
            log.info("event=environment_stopped name=%s", definition.name)
        except Exception as error:  # also a fault of ours must not leave pods waiting without a word
            is_told = isinstance(error, EnvironmentFailed)
            message = str(error) if is_told else f"{type(error).__name__}: {error}"
            outcome = Failed(message, failures + 1, time.monotonic() + _BACKOFF.seconds(failures + 1))
            arguments = (definition.name, outcome.failures, message)
            log.warning("event=environment_failed name=%s failures=%d error=%s", *arguments, exc_info=not is_told)
        with self._lock:
            if outcome is None:
                self._states.pop(place, None)
            else:
                self._states[place] = outcome
