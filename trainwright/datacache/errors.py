"""Errors of the data cache, for its programs and for the trainings that read it."""

from __future__ import annotations


class CacheError(Exception):
    """The cache cannot be made or read. The message names the table or the cache, and what to do."""


class CacheLost(CacheError):
    """A cache does not answer any more, or has returned other rows than it said."""
