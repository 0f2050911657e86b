"""What is wrong with a dataset or a model before any training starts."""

from __future__ import annotations


class InitializerError(Exception):
    """The source cannot be used; the message names the URI, the file and what was expected."""
