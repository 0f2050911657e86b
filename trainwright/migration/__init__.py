"""Migrates manifests of Kubeflow's earlier training kinds to TrainJobs, with notes about fields without a counterpart."""

from trainwright.migration.legacy_trainjob import is_legacy
from trainwright.migration.migrate import KINDS, is_outdated, migrate, migrate_all
from trainwright.migration.notes import MigrationResult, Note

__all__ = ["KINDS", "MigrationResult", "Note", "is_legacy", "is_outdated", "migrate", "migrate_all"]
