"""Faults are tested on one cluster, for all of a module."""

from faults_plane import plane  # noqa: F401  fixture
