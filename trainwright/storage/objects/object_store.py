"""A store in a bucket of an object store, or below a prefix of one: what exports, their pointers and their locks are written with.

Small files are written under conditions, so that of concurrent writers one wins; locks are leases made of such writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.storage.errors import AlreadyExists, NoAccess, NoBucket, NotFound, NotSupported, StorageError, Transient
from trainwright.storage.objects.connection import ObjectConnection, obstore_errors
from trainwright.storage.objects.lease import LEASE_SECONDS, hold_lease
from trainwright.storage.objects.object_reader import ObjectReader
from trainwright.storage.objects.upload import upload_file
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.store import Capabilities, Lock, StoredFile, lost_lock_first
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


class ObjectStore(ObjectReader):
    """Implements `Store` for all object stores."""

    never_matches = '"00000000000000000000000000000000"'
    """A version that no object has."""

    def __init__(self, uri: StorageUri, connection: ObjectConnection, *, lease_seconds: float = LEASE_SECONDS):
        super().__init__(uri, connection)
        self._lease_seconds = lease_seconds

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        return upload_file(self._connection, source, self._path(key), self.uri.join(key), on_progress, within)

    def create(self, key: str, content: bytes) -> None:
        uri = self.uri.join(key)
        if self.head(key) is not None:  # a store that ignores If-None-Match would overwrite it
            raise AlreadyExists(f"{uri} exists")
        try:
            written = self.put_if(key, content, None)
        except NotSupported:  # the store has no conditional writes: the look before was all that can be done
            return self.replace(key, content)
        if written is None and self.read(key) != content:  # the same content: the answer to our own request was lost
            raise AlreadyExists(f"{uri} exists")

    def replace(self, key: str, content: bytes) -> None:
        self._write(key, content, "overwrite")

    def compare_and_swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        version = None
        if old is not None:
            try:
                content, version = self.read_with_version(key)
            except NotFound:  # somebody has deleted what was to be replaced
                return False
            if content != old:  # somebody was faster
                return False
        elif self.head(key) is not None:  # it was to be new
            return False
        try:
            return self.put_if(key, new, version) is not None
        except NotSupported:
            self.replace(key, new)
            return True

    def delete(self, key: str) -> None:
        import obstore

        def delete() -> None:
            with contextlib.suppress(NotFound), obstore_errors(self.uri.join(key)):
                obstore.delete(self._connection.bucket, self._path(key))

        self._connection.retry(delete, self.uri.join(key))

    def sync(self, keys: list[str]) -> None:
        """What an object store has acknowledged is durable."""

    def put_if(self, key: str, content: bytes, version: str | None) -> str | None:
        """Write if the object has this version (None: if it does not exist). Returns the new version, or None.

        Raises NotSupported, StorageError.
        """
        try:
            return self._write(key, content, "create" if version is None else self.condition(version))
        except (AlreadyExists, NotFound):  # some stores answer 404 to a conditional write of a deleted object
            return None

    def condition(self, version: str) -> dict[str, str]:
        """Return the condition that an object has this version, for obstore."""
        return {"e_tag": version}

    def _write(self, key: str, content: bytes, mode: Any) -> str:
        import obstore

        def write() -> str:
            with obstore_errors(self.uri.join(key)):
                done = obstore.put(self._connection.bucket, self._path(key), content, mode=mode, use_multipart=False)
            return self.version_of(done)

        return self._connection.retry(write, self.uri.join(key))

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[Lock]:
        """Hold a lease on a hidden object beside the files. Logs a warning if the store does not support leases.

        If the lease is taken over from a holder that was killed, incomplete uploads below this store are aborted.
        """
        lock_key = f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock"
        with contextlib.ExitStack() as stack:
            lease: Lock = NoLease()
            if self.capabilities().conditional_writes:
                holding = hold_lease(LeaseFile(self, lock_key), str(self.uri.join(key)), lease_seconds=self._lease_seconds)
                held = stack.enter_context(holding)
                if held.was_taken_over:
                    self._abort_incomplete_uploads()
                lease = held
            else:
                log.warning(
                    "this store ignores If-None-Match or If-Match, so concurrent exports are not prevented; "
                    "run only one export at a time uri=%s",
                    self.uri.join(key),
                )
            with lost_lock_first(lease):
                yield lease

    def _abort_incomplete_uploads(self) -> None:
        """Abort uploads below this store, which only the caller writes to, where the store lists them."""

    def check_writable(self) -> None:
        key = f".trainwright-probe-{secrets.token_hex(8)}"
        try:
            self._try_to_write(key)
        finally:
            self.delete(key)

    def capabilities(self) -> Capabilities:
        """Try them once per bucket and process, with a small object that is then deleted. Raises StorageError."""
        return self._connection.capabilities(self._try_capabilities)

    def _try_capabilities(self) -> Capabilities:
        key = f".trainwright-probe-{secrets.token_hex(8)}"
        try:
            self._try_to_write(key)
            try:
                conditional = self.put_if(key, b"", None) is None and self.put_if(key, b"", self.never_matches) is None
            except NotSupported:  # without conditions, the comparison above is all that the store allows
                conditional = False
            return Capabilities(conditional, self._connection.sends_checksums and self._checks_uploads(key))
        finally:
            self.delete(key)

    def _try_to_write(self, key: str) -> None:
        try:
            self.replace(key, b"probe")
        except (NoAccess, NoBucket, Transient):  # for another reason than checksums
            raise
        except StorageError:  # perhaps of a store that refuses uploads with a checksum
            self._connection.send_no_checksums()
            self.replace(key, b"probe")

    def _checks_uploads(self, key: str) -> bool:
        """Return whether the store refuses an upload with a wrong CRC64NVME. May overwrite the file. Raises StorageError."""
        return False


@dataclass
class LeaseFile:
    """The object of a lease, for `hold_lease`."""

    store: ObjectStore
    key: str

    def put_if(self, content: bytes, version: str | None) -> str | None:
        return self.store.put_if(self.key, content, version)

    def read(self) -> tuple[bytes, str] | None:
        try:
            return self.store.read_with_version(self.key)
        except NotFound:
            return None

    def remove(self) -> None:
        self.store.delete(self.key)


class NoLease:
    """Of a store without conditional writes: nothing is locked, so nothing can be lost."""

    def require(self) -> None:
        pass
