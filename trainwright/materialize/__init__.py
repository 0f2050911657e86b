"""From a TrainJob and its runtime to Kubernetes objects: a pure function, the one place where Trainer's rules are applied."""

from trainwright.materialize.assembly import materialize
from trainwright.materialize.settings import ProgressReports, Settings

__all__ = ["ProgressReports", "Settings", "materialize"]
