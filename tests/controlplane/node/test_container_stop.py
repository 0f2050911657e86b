"""Stops of a run: the preStop hook counts within the grace, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.container_keeper import MINIMUM_SECONDS, ContainerStop
from trainwright.controlplane.node.handlers import Outcome

TERM, KILL = signal.SIGTERM, signal.SIGKILL


@dataclass
class SignalledRun:
    signals: list[signal.Signals] = field(default_factory=list)

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)


@dataclass
class Scene:
    """A stop that began at 100."""

    grace: float
    hook: Future[Outcome] | None = None
    waits: bool = False
    run: SignalledRun = field(default_factory=SignalledRun)
    abandon: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.stop = ContainerStop(cast(ContainerRun, self.run), self.grace, 100.0, self.hook, self.abandon, waits=self.waits)

    def at(self, seconds: float) -> tuple[list[Any], float | None]:
        """Look at it so many seconds after the beginning: the signals so far, and in how many seconds to come again."""
        again = self.stop.advance(100.0 + seconds)
        return list(self.run.signals), None if again is None else again - 100.0


def test_sigterm_at_once_and_sigkill_after_the_grace() -> None:
    scene = Scene(30)
    assert scene.at(0) == ([TERM], 30)
    assert scene.at(29.9) == ([TERM], 30)
    assert scene.at(30) == ([TERM, KILL], None)
    assert scene.at(31) == ([TERM, KILL], None)


@pytest.mark.parametrize("grace", [0, 1, 2])
def test_two_seconds_are_the_least(grace: float) -> None:
    scene = Scene(grace)
    assert scene.at(0) == ([TERM], MINIMUM_SECONDS)
    assert scene.at(MINIMUM_SECONDS) == ([TERM, KILL], None)


def test_a_hook_counts_within_the_grace() -> None:
    hook: Future[Outcome] = Future()
    scene = Scene(30, hook)
    assert scene.at(0) == ([], 30)
    hook.set_result(Outcome(True))
    assert scene.at(20) == ([TERM], 30)
    assert scene.abandon.is_set()
    assert scene.stop.failed_hook is None
    assert scene.at(30) == ([TERM, KILL], None)


def test_waiting_container_is_signalled_at_its_turn() -> None:
    hook: Future[Outcome] = Future()
    scene = Scene(30, hook, waits=True)
    assert scene.at(0) == ([], 30)
    hook.set_result(Outcome(True))
    assert scene.at(5) == ([], 30)
    scene.stop.take_turn()
    assert scene.at(6) == ([TERM], 30)


def test_one_whose_turn_does_not_come_is_told_at_the_end_of_its_grace() -> None:
    scene = Scene(30, waits=True)
    assert scene.at(29) == ([], 30)
    assert scene.at(30) == ([TERM], 32)
    assert scene.at(32) == ([TERM, KILL], None)


def test_a_hook_that_ends_late_leaves_two_seconds() -> None:
    hook: Future[Outcome] = Future()
    scene = Scene(30, hook)
    scene.at(0)
    hook.set_result(Outcome(False, "exit 9"))
    assert scene.at(29.5) == ([TERM], 31.5)
    assert scene.stop.failed_hook == Outcome(False, "exit 9")
    assert scene.at(31.5) == ([TERM, KILL], None)


def test_a_hook_that_does_not_end_is_given_up_with_the_grace() -> None:
    scene = Scene(30, Future())
    scene.at(0)
    assert scene.at(30) == ([TERM], 32)
    assert scene.abandon.is_set()
    assert scene.at(32) == ([TERM, KILL], None)


def test_a_second_deletion_may_shorten_the_grace_and_not_lengthen_it() -> None:
    scene = Scene(30)
    scene.at(0)
    scene.stop.shorten(60, 105.0)
    assert scene.at(5) == ([TERM], 30)
    scene.stop.shorten(3, 110.0)
    assert scene.at(10) == ([TERM], 13)
    scene.stop.shorten(0, 111.0)
    assert scene.at(11) == ([TERM], 13), "two seconds are the least"
    assert scene.at(13) == ([TERM, KILL], None)
