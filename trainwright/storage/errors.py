"""What can go wrong between here and a store; every message names the URI or the path, and what to do where there is something."""

from __future__ import annotations


class StorageError(Exception):
    """Reading or writing failed."""


class BadUri(StorageError):
    """The text is no URI that we know; running again will not help."""


class NotThere(StorageError):
    """What a URI names does not exist."""


class AlreadyThere(StorageError):
    """Something exists that was to be created; whoever came first keeps it."""


class Damaged(StorageError):
    """What was read is not what was written: a size or a digest differs."""


class NoSpace(StorageError):
    """The disk is too full for what is to be written."""


class NoAccess(StorageError):
    """The store refuses us: no credentials, wrong ones, or ones that may not do this."""


class NoBucket(StorageError):
    """The bucket of a URI does not exist."""


class Unreachable(StorageError):
    """Nobody answers at the store's address."""


class NotSupported(StorageError):
    """The store cannot do what was asked."""
