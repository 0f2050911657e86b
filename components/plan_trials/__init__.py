"""The component plan_trials."""

from trainwright.components.plan_trials.component import plan_trials

__all__ = ["plan_trials"]
