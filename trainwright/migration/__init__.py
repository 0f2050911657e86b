"""From the manifests of Kubeflow's earlier training kinds to a TrainJob, with a note on whatever could not be kept."""

from trainwright.migration.early_trainjob import is_early
from trainwright.migration.migrate import KINDS, is_outdated, migrate
from trainwright.migration.notes import Migrated, Note

__all__ = ["KINDS", "Migrated", "Note", "is_early", "is_outdated", "migrate"]
