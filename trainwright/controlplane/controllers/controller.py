"""Running one reconciler: watches turn changes into keys, workers take keys and reconcile them until the world is as it should be."""

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
from trainwright.controlplane.controllers.measures import Measures, Result
from trainwright.controlplane.controllers.queue import Key, KeyQueue

log = logging.getLogger(__name__)


class Stuck(Exception):
    """A reconciler cannot go on with what it sees until somebody changes it; the message says what. Tried again later and later."""


Reconcile = Callable[[Key], float | None]
"""Bring one object's world in order. Returns after how many seconds to look again, or None. May be run twice."""


def own_key(obj: Obj) -> list[Key]:
    return [(namespace_of(obj), name_of(obj))]


def key_of_controller(kind: str) -> Callable[[Obj], list[Key]]:
    """A mapper from a child to the key of its controller, when that is of the given kind."""

    def keys(obj: Obj) -> list[Key]:
        owner = controller_of(obj)
        return [(namespace_of(obj), owner["name"])] if owner and owner.get("kind") == kind else []

    return keys


Delay = Callable[[str, Obj], float]
"""After how many seconds a change (its event type and the object) is looked at; changes that come meanwhile are seen with it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one key: after how many seconds it is to be looked at again, how its reconciler ended, and how long it took."""

    key: Key
    again: float | None
    result: Result
    seconds: float

    @property
    def failed(self) -> bool:
        return self.result not in ("success", "later")

    def in_vain(self) -> Outcome:
        """The same, when what was written did not come to disk."""
        return replace(self, again=None, result="error")


@dataclass
class Controller:
    """A reconciler and what wakes it. `watches` maps each kind to the keys that a changed object concerns.

    A change is looked at at once, or after what `delays` says for its kind.
    """

    name: str
    reconcile: Reconcile
    watches: Mapping[Kind, Callable[[Obj], Iterable[Key]]]
    workers: int = 1
    delays: Mapping[Kind, Delay] = field(default_factory=dict)
    changes: Mapping[Kind, Callable[[str, Obj], Iterable[Key]]] = field(default_factory=dict)
    """As `watches`, for who has to know what happened, too: ADDED, MODIFIED or DELETED."""
    queue: KeyQueue = field(default_factory=KeyQueue)
    measures: Measures = field(default_factory=Measures)

    def start(self, cache: LocalCache, stop: threading.Event) -> list[threading.Thread]:
        """Follow what the cache watches, and work, in daemon threads that end after `stop` is set. Before the cache starts."""
        for kind, handler in self.handlers().items():
            cache.follow(kind, handler)
        threads = []
        for number in range(self.workers):
            worker = threading.Thread(target=self._work_until_closed, name=f"{self.name}-{number}", daemon=True)
            worker.start()
            threads.append(worker)
        threading.Thread(target=self._close_with, args=(stop,), name=f"{self.name}-closer", daemon=True).start()
        return threads

    def handlers(self) -> dict[Kind, Handler]:
        """What enqueues the keys that a change of each kind concerns."""
        found = {kind: self._enqueuer(keys, self.delays.get(kind)) for kind, keys in self.watches.items()}
        return found | {kind: self._teller(keys) for kind, keys in self.changes.items()}

    def _teller(self, keys: Callable[[str, Obj], Iterable[Key]]) -> Handler:
        def enqueue(event: str, obj: Obj) -> None:
            for key in keys(event, obj):
                self.queue.add(key)

        return enqueue

    def _close_with(self, stop: threading.Event) -> None:
        stop.wait()
        self.queue.close()

    def _work_until_closed(self) -> None:
        while (key := self.queue.take()) is not None:
            self.settle(self.work(key))

    def _enqueuer(self, keys: Callable[[Obj], Iterable[Key]], delay: Delay | None) -> Callable[[str, Obj], None]:
        def enqueue(event: str, obj: Obj) -> None:
            seconds = delay(event, obj) if delay is not None else 0.0
            for key in keys(obj):
                if seconds > 0:
                    self.queue.add_after(key, seconds)
                else:
                    self.queue.add(key)

        return enqueue

    def work(self, key: Key) -> Outcome:
        """Reconcile a key that was taken from the queue. What comes of it is to be handed to `settle`, once it is on disk."""
        again: float | None = None
        result: Result = "crash"
        began = time.monotonic()
        try:
            again = self.reconcile(key)
            result = "success" if again is None else "later"
        except (Conflict, NotFound) as error:  # somebody wrote, or removed, first: look again
            result = "overtaken"
            log.debug("reconcile overtaken controller=%s key=%s/%s error=%s", self.name, *key, error.message)
        except Stuck as error:
            result = "stuck"
            log.warning("reconcile stuck controller=%s key=%s/%s error=%s", self.name, *key, error)
        except ApiError as error:
            result = "error"
            log.warning("reconcile failed controller=%s key=%s/%s error=%s", self.name, *key, error.message)
        except Exception:  # one broken object must not stop the controller for all others
            log.exception("reconcile crashed controller=%s key=%s/%s", self.name, *key)
        seconds = time.monotonic() - began
        if log.isEnabledFor(logging.DEBUG):
            log.debug("reconciled controller=%s key=%s/%s result=%s seconds=%.3f", self.name, *key, result, seconds)
        return Outcome(key, again, result, seconds)

    def settle(self, outcome: Outcome) -> None:
        """A key has been worked on: it comes back when its reconciler said so, or when that failed."""
        self.measures.observe(outcome.result, outcome.seconds)
        if outcome.again is not None:
            self.queue.add_after(outcome.key, outcome.again)
        self.queue.done(outcome.key, failed=outcome.failed)
