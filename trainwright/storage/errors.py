"""Errors of stores and transfers. Every message names the URI or the path and, where possible, a fix."""

from __future__ import annotations


class StorageError(Exception):
    """Reading or writing failed."""


class BadUri(StorageError):
    """The URI is malformed or has an unknown scheme. A retry cannot succeed."""


class NotFound(StorageError):
    """The file or object does not exist."""


class AlreadyExists(StorageError):
    """The file to be created exists already. It is left unchanged."""


class ChecksumMismatch(StorageError):
    """The size or the digest of the data differs from the recorded one."""


class LockLost(StorageError):
    """A lock that was held has been taken over by another process, or its lease has expired. A retry waits for the lock again."""


class UnsafeFile(StorageError):
    """The file is not a regular one, or a link leads out of its folder."""


class NoSpace(StorageError):
    """The disk has too little free space."""


class NotPermitted(StorageError):
    """The user of this process may not read or write a file. A retry cannot succeed."""


class NotMounted(StorageError, ValueError):
    """The volume of a path is not mounted where this process runs, which does not see its files. A retry cannot succeed."""


class NoAccess(StorageError):
    """The store denied access: credentials are missing, invalid, or lack the permission."""


class NoBucket(StorageError):
    """The bucket does not exist."""


class Transient(StorageError):
    """The request failed, but a retry often succeeds: a broken connection, a busy store, data damaged on its way."""


class DamagedUpload(Transient):
    """The store has received other data than was sent, by its checksum or its length, and has refused it."""


class Unreachable(Transient):
    """The store's endpoint does not respond."""


class ExpiredCredentials(NoAccess):
    """The credentials have expired. They may have been renewed since they were read."""


class NotSupported(StorageError):
    """The store does not support the operation."""
