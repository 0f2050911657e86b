"""Runs a reconciler: watches map changed objects to keys, and workers reconcile the keys."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, controller_of, name_of, namespace_of
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.controllers.local_cache import LocalCache
from trainwright.controlplane.controllers.metrics import ControllerMetrics, Result
from trainwright.controlplane.controllers.queue import Key, KeyQueue

log = logging.getLogger(__name__)


class TerminalError(Exception):
    """A retry cannot succeed until an object is changed; the message names it.

    The key is not requeued: the change enqueues it. So raise it only for objects that the controller watches, and an ApiError, which
    is retried with exponential backoff, for all others.
    """


Reconcile = Callable[[Key], float | None]
"""Reconciles one key. Returns the seconds after which to requeue it, or None. Must be idempotent."""


def object_key(obj: Obj) -> list[Key]:
    return [(namespace_of(obj), name_of(obj))]


def owner_key(kind: str) -> Callable[[Obj], list[Key]]:
    """Return a function that maps an object to the key of its controller, if that is of the given kind."""

    def keys(obj: Obj) -> list[Key]:
        owner = controller_of(obj)
        return [(namespace_of(obj), owner["name"])] if owner and owner.get("kind") == kind else []

    return keys


Delay = Callable[[str, Obj], float]
"""Maps a change (event type and object) to a delay in seconds, during which further changes are batched."""


@dataclass(frozen=True)
class ReconcileResult:
    """The result of reconciling a key: seconds until it is requeued (or None), result, and duration in seconds."""

    key: Key
    requeue_after: float | None
    result: Result
    seconds: float

    @property
    def is_retried(self) -> bool:
        """Whether the key is requeued with exponential backoff."""
        return self.result in ("conflict", "error", "panic")

    def as_error(self) -> ReconcileResult:
        """The result if its writes could not be persisted."""
        return replace(self, requeue_after=None, result="error")


@dataclass
class Controller:
    """A reconciler and its watches. `watches` maps a changed object of each kind to keys.

    A change is queued immediately, or after the delay in `delays` for its kind.
    """

    name: str
    reconcile: Reconcile
    watches: Mapping[Kind, Callable[[Obj], Iterable[Key]]]
    workers: int = 1
    delays: Mapping[Kind, Delay] = field(default_factory=dict)
    changes: Mapping[Kind, Callable[[str, Obj], Iterable[Key]]] = field(default_factory=dict)
    """Like `watches`, but the functions get the event type too: ADDED, MODIFIED or DELETED."""
    queue: KeyQueue = field(default_factory=KeyQueue)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)

    def start(self, cache: LocalCache, stop: threading.Event) -> list[threading.Thread]:
        """Start workers in daemon threads that end after `stop` is set. Must be called before the cache is started."""
        for kind, handler in self.handlers().items():
            cache.add_event_handler(kind, handler)
        threads = []
        for number in range(self.workers):
            worker = threading.Thread(target=self._work_until_closed, name=f"{self.name}-{number}", daemon=True)
            worker.start()
            threads.append(worker)
        threading.Thread(target=self._close_with, args=(stop,), name=f"{self.name}-closer", daemon=True).start()
        return threads

    def handlers(self) -> dict[Kind, Handler]:
        """Return a handler for each kind that enqueues the keys of a changed object."""
        handlers = {kind: self._enqueuer(keys, self.delays.get(kind)) for kind, keys in self.watches.items()}
        return handlers | {kind: self._change_enqueuer(keys) for kind, keys in self.changes.items()}

    def _change_enqueuer(self, keys: Callable[[str, Obj], Iterable[Key]]) -> Handler:
        def enqueue(event: str, obj: Obj) -> None:
            for key in keys(event, obj):
                self.queue.add(key)

        return enqueue

    def _close_with(self, stop: threading.Event) -> None:
        stop.wait()
        self.queue.close()

    def _work_until_closed(self) -> None:
        while (key := self.queue.take()) is not None:
            self.finish(self.process(key))

    def _enqueuer(self, keys: Callable[[Obj], Iterable[Key]], delay: Delay | None) -> Callable[[str, Obj], None]:
        def enqueue(event: str, obj: Obj) -> None:
            seconds = delay(event, obj) if delay is not None else 0.0
            for key in keys(obj):
                if seconds > 0:
                    self.queue.add_after(key, seconds)
                else:
                    self.queue.add(key)

        return enqueue

    def process(self, key: Key) -> ReconcileResult:
        """Reconcile a key from the queue. Pass the result to `finish` once its writes are persisted."""
        requeue_after: float | None = None
        result: Result = "panic"
        started = time.monotonic()
        try:
            requeue_after = self.reconcile(key)
            result = "success" if requeue_after is None else "requeue_after"
        except (Conflict, NotFound) as error:  # another writer was faster: retry
            result = "conflict"
            log.debug("reconcile conflict controller=%s key=%s/%s error=%s", self.name, *key, error.message)
        except TerminalError as error:  # until the object changes
            result = "terminal"
            log.warning("reconcile failed, a retry cannot succeed controller=%s key=%s/%s error=%s", self.name, *key, error)
        except ApiError as error:  # retried with exponential backoff
            result = "error"
            log.warning("reconcile failed controller=%s key=%s/%s error=%s", self.name, *key, error.message)
        except Exception:  # one broken object must not stop the controller for all others
            log.exception("reconcile panicked controller=%s key=%s/%s", self.name, *key)
        seconds = time.monotonic() - started
        if log.isEnabledFor(logging.DEBUG):
            log.debug("reconciled controller=%s key=%s/%s result=%s seconds=%.3f", self.name, *key, result, seconds)
        return ReconcileResult(key, requeue_after, result, seconds)

    def finish(self, result: ReconcileResult) -> None:
        """Record metrics, and requeue the key if requested or failed."""
        self.metrics.observe(result.result, result.seconds)
        if result.requeue_after is not None:
            self.queue.add_after(result.key, result.requeue_after)
        self.queue.done(result.key, failed=result.is_retried)
