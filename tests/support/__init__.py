"""Fixtures and functions that tests of several folders share: clusters, environments, clocks, waiting."""
