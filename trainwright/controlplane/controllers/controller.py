"""Running one reconciler: watches turn changes into keys, workers take keys and reconcile them until the world is as it should be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

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
    queue: KeyQueue = field(default_factory=KeyQueue)
    measures: Measures = field(default_factory=Measures)

    def start(self, cache: LocalCache, stop: threading.Event) -> list[threading.Thread]:
        """Follow what the cache watches, and work, in daemon threads that end after `stop` is set. Before the cache starts."""
        for kind, handler in self.handlers().items():
            cache.follow(kind, handler)
        threads = []
        for number in range(self.workers):
            worker = threading.Thread(target=self._work_until_closed, args=(cache,), name=f"{self.name}-{number}", daemon=True)
            worker.start()
            threads.append(worker)
        threading.Thread(target=self._close_with, args=(stop,), name=f"{self.name}-closer", daemon=True).start()
        return threads

    def handlers(self) -> dict[Kind, Handler]:
        """What enqueues the keys that a change of each kind concerns."""
        return {kind: self._enqueuer(keys, self.delays.get(kind)) for kind, keys in self.watches.items()}

    def _close_with(self, stop: threading.Event) -> None:
        stop.wait()
        self.queue.close()

    def _work_until_closed(self, cache: LocalCache) -> None:
        while (key := self.queue.take()) is not None:
            self.work(key, cache.together)

    def _enqueuer(self, keys: Callable[[Obj], Iterable[Key]], delay: Delay | None) -> Callable[[str, Obj], None]:
        def enqueue(event: str, obj: Obj) -> None:
            seconds = delay(event, obj) if delay is not None else 0.0
            for key in keys(obj):
                if seconds > 0:
                    self.queue.add_after(key, seconds)
                else:
                    self.queue.add(key)

        return enqueue

    def work(self, key: Key, together: Callable[[], AbstractContextManager[None]]) -> None:
        """Reconcile a key that was taken from the queue; `together` is the context that its writes are made in."""
        failed = True
        result: Result = "crash"
        began = time.monotonic()
        try:
            with together():
                again = self.reconcile(key)
            failed, result = False, "success" if again is None else "later"
            if again is not None:
                self.queue.add_after(key, again)
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
        finally:
            seconds = time.monotonic() - began
            self.measures.observe(result, seconds)
            log.debug("reconciled controller=%s key=%s/%s result=%s seconds=%.3f", self.name, *key, result, seconds)
            self.queue.done(key, failed=failed)
