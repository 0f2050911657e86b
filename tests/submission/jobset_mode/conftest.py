"""Jobset mode is tested over an API server in memory."""

from jobset_mode_parts import cluster, inner  # noqa: F401  fixtures
