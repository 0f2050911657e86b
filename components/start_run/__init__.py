"""The component `start_run`."""

from trainwright.components.start_run_component.component import start_run

__all__ = ["start_run"]
