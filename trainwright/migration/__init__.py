"""From the manifests of Kubeflow's earlier training kinds to a TrainJob, with a note on whatever could not be kept."""

from trainwright.migration.migrate import KINDS, migrate
from trainwright.migration.notes import Migrated, Note

__all__ = ["KINDS", "Migrated", "Note", "migrate"]
