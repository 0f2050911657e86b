"""Faults are tested on one cluster, for all of a module."""

from cluster_without_retries import plane  # noqa: F401  fixture
