"""The virtual clock of the tests: order and time of what threads do, without waiting."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time

import pytest
from support.virtual_time import TooLong, VirtualClock, run_on_clock


def test_threads_meet_at_the_moments_they_wait_for() -> None:
    seen: list[tuple[float, str]] = []
    started = time.perf_counter()
    with VirtualClock(epoch=1000.0).installed():

        def work(name: str, seconds: float) -> None:
            for _ in range(3):
                time.sleep(seconds)
                seen.append((time.monotonic(), name))

        threads = [threading.Thread(target=work, args=(name, seconds)) for name, seconds in (("a", 100.0), ("b", 70.0))]
        for thread in threads:
            thread.start()
        time.sleep(1000.0)
        assert time.time() == 2000.0
    assert sorted(seen) == [(70.0, "b"), (100.0, "a"), (140.0, "b"), (200.0, "a"), (210.0, "b"), (300.0, "a")]
    assert time.perf_counter() - started < 10


def test_events_and_queues_wake_at_the_moment_they_are_set() -> None:
    with VirtualClock().installed():
        ready, lines = threading.Event(), queue.Queue[int](maxsize=1)

        def work() -> None:
            time.sleep(5)
            ready.set()
            for number in range(3):
                lines.put(number)
                time.sleep(2)

        threading.Thread(target=work).start()
        assert not ready.wait(3)
        assert ready.wait(30)
        assert time.monotonic() == 5.0
        assert [lines.get(timeout=10) for _ in range(3)] == [0, 1, 2]
        assert time.monotonic() == 9.0
        with pytest.raises(queue.Empty):
            lines.get(timeout=10)
        assert time.monotonic() == 19.0


def test_coroutines_and_thread_pools_wait_on_the_clock() -> None:
    async def work() -> list[float]:
        seen = []
        await asyncio.sleep(30)
        seen.append(time.monotonic())
        await asyncio.to_thread(time.sleep, 60)
        seen.append(time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return [*seen, time.monotonic()]

    with VirtualClock().installed():
        assert run_on_clock(work()) == [30.0, 90.0, 95.0]


def wait_for_ever() -> None:
    while True:
        threading.Event().wait(7)


def test_endless_wait_raises_too_long() -> None:
    with VirtualClock(limit=60).installed(), pytest.raises(TooLong):
        wait_for_ever()
