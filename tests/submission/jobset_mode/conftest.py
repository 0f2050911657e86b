"""Jobset mode is tested over an API server in memory."""

from support.jobset_mode_cluster import cluster, inner  # noqa: F401  fixtures
