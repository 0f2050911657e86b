"""The component `start_run`."""

from trainwright.components.start_run.component import start_run

__all__ = ["start_run"]
