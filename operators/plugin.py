"""Airflow's plugin of the provider. Its listener begins the search for left jobs in a triggerer; elsewhere it does nothing."""

from __future__ import annotations

import os
import sys
import threading

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

FORK_SECONDS = 15.0
"""How long the search waits for the triggerer to start its other process: a thread must hold no lock in the middle of that."""
_begun = threading.Event()
_forked = threading.Event()


class _Listener:
    @hookimpl
    def on_starting(self, component: object) -> None:
        """A part of Airflow starts. Its kind is not known yet, only the command that has started this process."""
        if sys.argv[1:2] == ["triggerer"]:
            begin_search()


def begin_search() -> None:
    """Begin the search for left jobs in this process, unless it has begun."""
    if not _begun.is_set():
        _begun.set()
        os.register_at_fork(after_in_parent=_forked.set)
        threading.Thread(target=_search_for_ever, name="left-jobs", daemon=True).start()


def _search_for_ever() -> None:
    _forked.wait(FORK_SECONDS)
    from trainwright.operators.deferral.left_jobs import PERIOD_SECONDS, LeftJobs

    search, pause = LeftJobs(), threading.Event()
    while not pause.wait(PERIOD_SECONDS):
        search.look()


class TrainwrightPlugin(AirflowPlugin):
    """Has a listener, and nothing that a page would show."""

    name = "trainwright"
    listeners = [_Listener()]
