"""Errors in the source of a dataset or a model."""

from __future__ import annotations


class InitializerError(Exception):
    """The source is unusable. The message names the URI, the file and what was expected."""
