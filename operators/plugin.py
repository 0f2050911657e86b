"""Airflow's plugin of the provider. Its listener begins the search for left jobs in a triggerer; elsewhere it does nothing."""

from __future__ import annotations

import sys

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin


class _Listener:
    @hookimpl
    def on_starting(self, component: object) -> None:
        """A part of Airflow starts. Its kind is not known yet, only the command that has started this process."""
        if sys.argv[1:2] == ["triggerer"]:
            from trainwright.operators.deferral.left_jobs import begin_search

            begin_search()


class TrainwrightPlugin(AirflowPlugin):
    """Has a listener, and nothing that a page would show."""

    name = "trainwright"
    listeners = [_Listener()]
