"""The queue of keys: no duplicates, no key twice at once, failed keys later and later."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from support.manual_clock import ManualClock

from trainwright.controlplane.controllers.queue import LONGEST_WAIT, KeyQueue

A, B = ("ns", "a"), ("ns", "b")


def test_duplicates_are_dropped_and_order_is_kept() -> None:
    queue = KeyQueue()
    for key in (A, B, A):
        queue.add(key)
    assert [queue.take(), queue.take(), len(queue)] == [A, B, 0]


def test_a_key_added_while_it_is_worked_on_comes_again_when_it_is_done() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    assert len(queue) == 0
    queue.done(A)
    assert queue.take() == A


def test_failures_back_off_and_success_forgets_them() -> None:
    clock = ManualClock()
    queue = KeyQueue(clock)
    waits = []
    queue.add(A)
    for _ in range(4):
        assert queue.take() == A
        queue.done(A, failed=True)
        failed_at = clock.now
        while len(queue) == 0:
            clock.now += 0.01
        waits.append(round(clock.now - failed_at, 2))
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4], abs=0.02)
    queue.take()
    queue.done(A)
    queue.add(A)
    queue.take()
    queue.done(A, failed=True)
    clock.now += 0.06
    assert len(queue) == 1


def test_of_several_times_the_earliest_holds_and_is_the_only_one() -> None:
    clock = ManualClock()
    queue = KeyQueue(clock)
    for seconds in (30.0, 5.0, 9.0):
        queue.add_after(A, seconds)
    clock.now = 6.0
    assert queue.take() == A
    queue.done(A)
    clock.now = 60.0
    assert len(queue) == 0


def test_a_wait_of_centuries_is_waited_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, waits = KeyQueue(), list[float | None]()

    def wait(seconds: float | None) -> None:
        waits.append(seconds)
        queue.close()

    monkeypatch.setattr(queue._changed, "wait", wait)
    queue.add_after(A, 2.5e11)
    assert queue.take() is None
    assert waits == [LONGEST_WAIT]


def test_closing_wakes_everyone() -> None:
    queue = KeyQueue()
    taken: list[object] = []
    workers = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(3)]
    for worker in workers:
        worker.start()
    queue.close()
    for worker in workers:
        worker.join(5)
    assert taken == [None, None, None]


def test_property_no_key_is_worked_on_twice_at_once() -> None:
    queue = KeyQueue()
    working: Counter[tuple[str, str]] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    clashes: list[object] = []
    lock = threading.Lock()

    def work() -> None:
        while (key := queue.take()) is not None:
            with lock:
                working[key] += 1
                seen[key] += 1
                if working[key] > 1:
                    clashes.append(key)
            with lock:
                working[key] -= 1
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    keys = [("ns", str(number % 5)) for number in range(2000)]
    for key in keys:
        queue.add(key)
    while len(queue) or any(working.values()):
        pass
    queue.close()
    for worker in workers:
        worker.join(5)
    assert not clashes
    assert set(seen) == set(keys)
