"""The loop of a pod's steps: its waits, errors and end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.waiting import eventually

from trainwright.api.objects import Obj
from trainwright.controlplane.node.pod_worker import StepLoop

IDLE_SECONDS = 0.001
POD: Obj = {"metadata": {"name": "p", "namespace": "default"}}


class Steps:
    """Steps that do these things in turn, the last one again and again."""

    def __init__(self, *results: Callable[[], float | None]):
        self._results = results
        self.done: list[int] = []

    def __call__(self) -> float | None:
        self.done.append(len(self.done))
        return self._results[min(len(self.done), len(self._results)) - 1]()


@contextmanager
def looping(steps: Steps, is_quiet: Callable[[], bool] = lambda: False) -> Iterator[StepLoop]:
    loop = StepLoop(POD, steps, is_quiet, lambda: None, idle_seconds=IDLE_SECONDS, retry_seconds=0.001)
    yield loop
    loop.stop()
    loop.join(5)


def has_ended(loop: StepLoop) -> bool:
    loop.join(5)
    return not loop.is_alive()


def test_news_that_comes_with_the_last_step_is_not_lost() -> None:
    news: list[str] = []

    def overtaken() -> None:
        assert loop.offer(lambda: news.append("first"))

    steps = Steps(overtaken, lambda: None)
    with looping(steps) as loop:
        loop.start()
        assert has_ended(loop)
        assert steps.done == [0, 1]
        assert not loop.offer(lambda: news.append("second"))
        assert news == ["first"]


def test_a_step_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise error

    steps = Steps(lambda: fail(OSError("disk full")), lambda: fail(RuntimeError("a mistake of ours")), lambda: None)
    with looping(steps) as loop:
        loop.start()
        assert has_ended(loop)
    assert steps.done == [0, 1, 2]
    assert "pod=default/p error=disk full" in caplog.text
    assert "a mistake of ours" in caplog.text


def test_a_quiet_pod_is_looked_at_when_there_is_news() -> None:
    looks = threading.Semaphore(0)

    def is_quiet() -> bool:
        looks.release()
        return True

    steps = Steps(lambda: IDLE_SECONDS)
    with looping(steps, is_quiet) as loop:
        loop.start()
        for _ in range(3):
            assert looks.acquire(timeout=5)
        assert steps.done == [0]
        loop.wake()
        eventually(lambda: steps.done == [0, 1])


def test_a_wait_for_something_that_is_due_is_not_prolonged() -> None:
    steps = Steps(lambda: 0.0005, lambda: 0.0005, lambda: None)
    with looping(steps, lambda: True) as loop:
        loop.start()
        assert has_ended(loop)
    assert steps.done == [0, 1, 2]
