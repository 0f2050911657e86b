"""A virtual clock for code with threads: waiting costs no time, and every run passes through the same moments.

While the clock is installed, the calling thread and all threads that it starts wait on the clock: for conditions, events and queues,
and in `time.sleep`. Time stands still while one of them works, and jumps to the next deadline when all of them wait.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import heapq
import itertools
import queue
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

_OUTSIDE = "stop-on-signals"
"""The name of threads that wait for the operating system, whatever the time: they do not hold the clock."""
_REAL_WAIT, _REAL_START, _REAL_SLEEP = threading.Condition.wait, threading.Thread.start, time.sleep


class TooLong(BaseException):
    """The limit of the clock was reached: what is tested would wait for ever. No handler of errors catches it."""


class VirtualClock:
    """`epoch` is the time of day at 0, `limit` the number of seconds after which the main thread gets TooLong."""

    def __init__(self, epoch: float = 0.0, limit: float = 7200.0):
        self.now, self.epoch, self.limit = 0.0, epoch, limit
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._working = 0
        self._blocked: dict[Any, bool] = {}
        """Waiters, as locks: whether they still wait (else their time is over)."""
        self._deadlines: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()
        self._main = 0
        self._is_over = False

    @contextmanager
    def installed(self) -> Iterator[VirtualClock]:
        """Replace the clocks and the waits of the process; of other threads only the clocks."""
        with ExitStack() as patches:
            for target, name, replacement in (
                (time, "monotonic", lambda: self.now),
                (time, "time", lambda: self.epoch + self.now),
                (time, "sleep", self.sleep),
                (threading, "_time", lambda: self.now),
                (queue, "time", lambda: self.now),
                (threading.Condition, "wait", _wait_on(self)),
                (threading.Condition, "notify", _notify_on(self)),
                (threading.Thread, "start", _start_on(self)),
                (concurrent.futures.ThreadPoolExecutor, "submit", _submit),
            ):
                patches.enter_context(mock.patch.object(target, name, replacement))
            self._main = _thread.get_ident()
            self._threads.add(self._main)
            self._working += 1
            try:
                yield self
            finally:
                with self._lock:
                    self._threads.clear()
                    self._release_all()

    def jump(self, now: float) -> None:
        """Set the time."""
        with self._lock:
            self.now = now

    def sleep(self, seconds: float) -> None:
        """Wait as `time.sleep`."""
        if _thread.get_ident() not in self._threads:
            _REAL_SLEEP(seconds)
            return
        waiter = _thread.allocate_lock()
        waiter.acquire()
        self.block(waiter, max(seconds, 0.0))
        self.wait(waiter)

    def has(self, thread: int) -> bool:
        return thread in self._threads

    def block(self, waiter: Any, seconds: float | None) -> None:
        """Count the calling thread as waiting, for at most `seconds`."""
        with self._lock:
            self._blocked[waiter] = True
            self._working -= 1
            if seconds is not None:
                heapq.heappush(self._deadlines, (self.now + seconds, next(self._numbers), waiter))

    def wait(self, waiter: Any) -> bool:
        """Wait until woken (True) or for the time given to `block` (False)."""
        with self._lock:
            self._advance()
        waiter.acquire()
        with self._lock:
            woken = self._blocked.pop(waiter, False)
        if self._is_over and _thread.get_ident() == self._main:
            self._is_over = False
            raise TooLong(f"still waiting after {self.limit:g} s")
        return woken

    def wake(self, waiter: Any) -> bool | None:
        """Let a waiter go on; False if its time was over before, None if it does not wait on this clock."""
        with self._lock:
            if waiter not in self._blocked:
                return None
            if not self._blocked[waiter] or not waiter.locked():
                return False
            self._working += 1
            waiter.release()
            return True

    def begin(self) -> None:
        """A thread is about to start."""
        with self._lock:
            self._working += 1

    @contextmanager
    def thread(self) -> Iterator[None]:
        """What a started thread runs in."""
        with self._lock:
            self._threads.add(_thread.get_ident())
        try:
            yield
        finally:
            with self._lock:
                if _thread.get_ident() in self._threads:
                    self._threads.discard(_thread.get_ident())
                    self._working -= 1
                    self._advance()

    def _advance(self) -> None:
        while self._working == 0 and self._deadlines:
            when, _, waiter = heapq.heappop(self._deadlines)
            if not self._blocked.get(waiter, False) or not waiter.locked():
                continue
            self.now = max(self.now, when)
            if self.now > self.limit:
                self._is_over = True
                self._release_all()
                return
            self._blocked[waiter] = False
            self._working += 1
            waiter.release()

    def _release_all(self) -> None:
        for waiter, waits in self._blocked.items():
            if waits and waiter.locked():
                self._blocked[waiter] = False
                self._working += 1
                waiter.release()


def _wait_on(clock: VirtualClock) -> Any:
    def wait(self: Any, timeout: float | None = None) -> bool:
        if not clock.has(_thread.get_ident()):
            return _REAL_WAIT(self, timeout)
        if not self._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        waiter = _thread.allocate_lock()
        waiter.acquire()
        self._waiters.append(waiter)
        clock.block(waiter, None if timeout is None else max(timeout, 0.0))
        saved = self._release_save()
        woken = False
        try:
            woken = clock.wait(waiter)
        finally:
            self._acquire_restore(saved)
            if not woken and waiter in self._waiters:
                self._waiters.remove(waiter)
        return woken

    return wait


def _notify_on(clock: VirtualClock) -> Any:
    def notify(self: Any, n: int = 1) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        while self._waiters and n > 0:
            waiter = self._waiters.popleft()
            woken = clock.wake(waiter)
            if woken is None:
                waiter.release()
            n -= woken is not False

    return notify


def _start_on(clock: VirtualClock) -> Any:
    def start(self: Any) -> None:
        if clock.has(_thread.get_ident()) and self.name != _OUTSIDE:
            run = self.run

            def run_on_clock() -> None:
                with clock.thread():
                    run()

            self.run = run_on_clock
            clock.begin()
        _REAL_START(self)

    return start


def _submit(_pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
    """Run a call of a thread pool in a thread of its own: the idle threads of a pool wait where no clock reaches them."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """A selector that waits on the clock, until it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self._changed, self._is_woken = threading.Condition(), False

    def wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def select(self, timeout: float | None = None) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._is_woken, timeout)
            self._is_woken = False
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waker = _Selector()
        super().__init__(self._waker)

    def _write_to_self(self) -> None:
        super()._write_to_self()  # type: ignore[misc]
        self._waker.wake()


def run_on_clock(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine, as `asyncio.run`, on the installed clock."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
