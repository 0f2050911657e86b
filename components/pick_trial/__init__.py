"""The component pick_trial."""

from trainwright.components.pick_trial.component import pick_trial

__all__ = ["pick_trial"]
